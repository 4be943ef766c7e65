"""Grids of multigrid levels, of any extents, and their division into aggregates.

On every level a field is ``[site, 2 n, N]``: chirality + in the first n components, chirality - in the
others. Sites are numbered as on the fine lattice (`stages.lattice.geometry`), all even ones first, where all
extents are even, and lexicographically with x fastest otherwise. Neighbours wrap around: where an extent is 2
both neighbours are one site, where it is 1 they are the site itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stages.lattice.errors import InputError
from stages.lattice.geometry import DIRECTIONS

Extents = tuple[int, int, int, int]

HOPS = 8
"""Directions d = 2 mu + hop: hop 0 leads to x + mu, hop 1 to x - mu."""


@dataclass(frozen=True)
class Grid:
    """Extents (x, y, z, t) of a periodic grid, each at least 1."""

    extents: Extents

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", tuple(int(extent) for extent in self.extents))
        if len(self.extents) != 4 or min(self.extents) < 1:
            raise InputError(f"a grid has four extents of at least 1 (x y z t), got {self.extents}")

    def __str__(self) -> str:
        return "x".join(str(extent) for extent in self.extents)

    @property
    def sites(self) -> int:
        return int(np.prod(self.extents))

    @property
    def even_odd(self) -> bool:
        """Whether every neighbour of an even site is odd: every extent is even."""
        return all(extent % 2 == 0 for extent in self.extents)

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Coordinates (x, y, z, t) of every site, ``[site, 4]``."""
        x, y, z, t = self.extents
        lexicographic = np.indices((t, z, y, x)).reshape(4, -1)[::-1].T
        if not self.even_odd:
            return np.ascontiguousarray(lexicographic)
        return lexicographic[np.argsort(lexicographic.sum(axis=1) % 2, kind="stable")]

    def site(self, coordinates: NDArray[np.integer]) -> NDArray[np.int32]:
        """Number of the site at coordinates ``[..., 4]``, wrapped; int32 ``[...]``."""
        x, y, z, t = np.moveaxis(np.mod(coordinates, self.extents), -1, 0)
        lx, ly, lz, _ = self.extents
        number = ((t * lz + z) * ly + y) * lx + x
        if self.even_odd:
            number = number // 2 + (x + y + z + t) % 2 * (self.sites // 2)
        return number.astype(np.int32)

    @cached_property
    def neighbours(self) -> NDArray[np.int32]:
        """The neighbour of every site in every direction, int32 ``[site, 8]``."""
        table = np.empty((self.sites, HOPS), np.int32)
        for d in range(HOPS):
            moved = self.coordinates.copy()
            moved[:, d // 2] += 1 - 2 * (d % 2)
            table[:, d] = self.site(moved)
        return table


@dataclass(frozen=True)
class Aggregates:
    """The sites of `fine` in blocks of `extents` (x, y, z, t) sites, which are the sites of `coarse`.

    Raises InputError where an extent does not divide that of the grid.
    """

    fine: Grid
    extents: Extents

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", tuple(int(extent) for extent in self.extents))
        if len(self.extents) != 4 or min(self.extents) < 1:
            raise InputError(f"an aggregate has four extents of at least 1 (x y z t), got {self.extents}")
        for name, whole, part in zip(DIRECTIONS, self.fine.extents, self.extents, strict=True):
            if whole % part:
                raise InputError(
                    f"aggregates of {part} sites do not divide the {whole} sites of the {self.fine} grid in "
                    f"{name}: choose a divisor of {whole}"
                )

    @property
    def volume(self) -> int:
        """Sites of one aggregate."""
        return int(np.prod(self.extents))

    @cached_property
    def coarse(self) -> Grid:
        return Grid(tuple(np.array(self.fine.extents) // self.extents))  # type: ignore[arg-type]

    @property
    def halved(self) -> bool:
        """Whether each aggregate has as many even as odd sites, on a grid that has parities."""
        return self.fine.even_odd and self.volume % 2 == 0

    @cached_property
    def sites(self) -> NDArray[np.int32]:
        """Fine sites of every aggregate in ascending order, int32 ``[aggregate, site]``.

        Where the fine grid has parities the even sites are the first.
        """
        aggregate = self.coarse.site(self.fine.coordinates // self.extents)
        return np.argsort(aggregate, kind="stable").astype(np.int32).reshape(-1, self.volume)

    @cached_property
    def faces(self) -> tuple[NDArray[np.int64], ...]:
        """For each mu places in the rows of `sites` of those whose neighbour in +mu is beyond the aggregate.

        ``[aggregate, site of the face]``; over a boundary of the grid it is beyond it also where that
        leads to the same aggregate.
        """
        found = []
        for mu, extent in enumerate(self.extents):
            within = self.fine.coordinates[self.sites, mu] % extent
            places = np.argsort(within != extent - 1, axis=1, kind="stable")
            found.append(np.sort(places[:, : self.volume // extent], axis=1))
        return tuple(found)

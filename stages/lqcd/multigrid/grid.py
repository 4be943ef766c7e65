"""Grids of multigrid levels, of any extents, their fields, and their division into aggregates.

On every level a field is ``[site, 2 n, N]``: chirality + in the first n components, chirality - in the
others. Sites are numbered as on the fine lattice (`stages.lqcd.lattice.geometry`), all even ones first, where
all extents are even, and lexicographically with x fastest otherwise. Neighbours wrap around: where an extent
is 2 both neighbours are one site, where it is 1 they are the site itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import random_numbers
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_rows, field_like, zero_rows
from stages.lqcd.lattice.geometry import DIRECTIONS

Extents = tuple[int, int, int, int]

HOPS = 8
"""Directions d = 2 mu + hop: hop 0 leads to x + mu, hop 1 to x - mu."""

SHARED_SITES = 2048
"""A grid with fewer sites lies on the first GPU: launches of a few microseconds do not wait for others."""


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
        """True if every neighbour of an even site is odd: every extent is even."""
        return all(extent % 2 == 0 for extent in self.extents)

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """Number of every site, int32 ``[t, z, y, x]``."""
        shape = self.extents[::-1]
        numbers = np.arange(self.sites, dtype=np.int32).reshape(shape)
        if self.even_odd:
            t, z, y, x = np.indices(shape, np.int32, sparse=True)
            numbers = numbers // 2 + (t + z + y + x) % 2 * np.int32(self.sites // 2)
        return numbers

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Coordinates (x, y, z, t) of every site, ``[site, 4]``."""
        coordinates = np.empty((self.sites, 4), np.int64)
        coordinates[self.numbers.reshape(-1)] = np.indices(self.extents[::-1]).reshape(4, -1)[::-1].T
        return coordinates

    @cached_property
    def neighbours(self) -> NDArray[np.int32]:
        """The neighbour of every site in every direction, int32 ``[site, 8]``."""
        table = np.empty((self.sites, HOPS), np.int32)
        for d in range(HOPS):
            beside = np.roll(self.numbers, 2 * (d % 2) - 1, axis=3 - d // 2)
            table[self.numbers.reshape(-1), d] = beside.reshape(-1)
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
        """True if each aggregate has as many even as odd sites, on a grid that has parities."""
        return self.fine.even_odd and self.volume % 2 == 0

    @cached_property
    def sites(self) -> NDArray[np.int32]:
        """Fine sites of every aggregate in ascending order, int32 ``[aggregate, site]``.

        Where the fine grid has parities the even sites are the first.
        """
        x, y, z, t = self.extents
        X, Y, Z, T = self.coarse.extents
        blocks = self.fine.numbers.reshape(T, t, Z, z, Y, y, X, x).transpose(0, 2, 4, 6, 1, 3, 5, 7)
        rows = np.empty((self.coarse.sites, self.volume), np.int32)
        rows[self.coarse.numbers.reshape(-1)] = blocks.reshape(-1, self.volume)
        return np.sort(rows, axis=1)

    @cached_property
    def faces(self) -> tuple[NDArray[np.int32], ...]:
        """Places in the rows of `sites` whose neighbour in +mu is beyond the aggregate, for each mu.

        ``[aggregate, site of the face]``; over a boundary of the grid it is beyond it also where that
        leads to the same aggregate.
        """
        within = self.fine.coordinates[self.sites] % self.extents
        last = np.moveaxis(within == np.array(self.extents) - 1, -1, 0)
        return tuple(np.nonzero(face)[1].astype(np.int32).reshape(len(face), -1) for face in last)

    @cached_property
    def face_sites(self) -> tuple[NDArray[np.int32], ...]:
        """The sites at those places."""
        return tuple(np.take_along_axis(self.sites, places, axis=1) for places in self.faces)


@lru_cache(maxsize=4)
def aggregates(fine: Grid, extents: Extents) -> Aggregates:
    """`Aggregates` whose tables serve every setup on the same lattice. Raises InputError as they do."""
    return Aggregates(fine, extents)


def on_grid(grid: Grid, like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array ``[site, *shape]``, not filled, of the library and, unless given, the dtype of another."""
    return empty_rows(like, (grid.sites, *shape), dtype or like.dtype, _runs(grid))


def zeros_on_grid(grid: Grid, like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array ``[site, *shape]`` of zeros: see `on_grid`."""
    return zero_rows(like, (grid.sites, *shape), dtype or like.dtype, _runs(grid))


def _runs(grid: Grid) -> int:
    """Runs of sites that are cut in t: those of each parity where the grid has parities."""
    return 0 if grid.sites < SHARED_SITES else 2 if grid.even_odd else 1


def random_fields(shape: tuple[int, ...], dtype: DTypeLike, like: Array, seed: int, draw: int = 0) -> Array:
    """Random fields ``[site, component, count]`` of `dtype` where `like` lives, the same on every backend."""
    fields = field_like(like, shape, dtype)
    random_numbers.fill_random(fields, seed, draw)
    return fields


def random_on_grid(grid: Grid, components: int, count: int, like: Array, seed: int, draw: int) -> Array:
    """Random fields ``[site, component, count]`` on a grid, complex64, where `like` lives."""
    fields = on_grid(grid, like, (components, count), np.complex64)
    random_numbers.fill_random(fields, seed, draw)
    return fields

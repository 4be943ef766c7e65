"""The operators e^{ipx} D between fields on time slices: what elementals and current insertions share.

p = 2 pi n / L with integers n, x counted from the origin; D are covariant displacements
(`stages.lqcd.dirac.displacement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from types import ModuleType

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import displaced, steps_of
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import field_like, slices_like
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

Momentum = tuple[int, int, int]
"""n of x, y and z."""


@dataclass(frozen=True)
class Insertions:
    """Momenta and displacements (words such as "+x-y"). InputError for what is neither and for none."""

    lattice: Lattice
    momenta: tuple[Momentum, ...]
    displacements: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, wanted in (("momenta", self.momenta), ("displacements", self.displacements)):
            if not wanted:
                raise InputError(f"there are no {name}: give at least one, (0, 0, 0) and '' for none")
        for momentum in self.momenta:
            integers = isinstance(momentum, Sequence) and all(isinstance(n, Integral) for n in momentum)
            if not integers or len(momentum) != 3:
                raise InputError(
                    f"a momentum is three integers, in units of 2 pi / L of x, y and z, got {momentum}"
                )
        for word in self.displacements:
            steps_of(word)

    @cached_property
    def longest(self) -> int:
        """Steps of the longest displacement."""
        return max((len(steps_of(word)) for word in self.displacements), default=0)

    @property
    def scratch_fields(self) -> int:
        """Fields like the right one that `between` makes."""
        return min(2, self.longest) + any(map(any, self.momenta))

    def scratch_bytes(
        self, right: tuple[int, ...], left_columns: int, dtype: np.dtype, xp: ModuleType
    ) -> int:
        """Most bytes that `between` allocates beside `links_for` for a right field of this shape."""
        times, _, sites, _, columns = right
        fields = self.scratch_fields * int(np.prod(right)) * dtype.itemsize
        products = len(self.momenta) * times * left_columns * columns * np.dtype(complex).itemsize
        phases = 2 * times * sites * (dtype.itemsize + 8) + 4 * sites * np.dtype(complex).itemsize
        shape = (times, 2, sites, COLOURS, left_columns)
        return fields + products + phases + slice_products.workspace_bytes(shape, columns, dtype, xp)

    def links_bytes(self, links: Array | None, dtype: np.dtype) -> int:
        """Bytes that `links_for` allocates."""
        if not self.longest or links is None or links.dtype == dtype:
            return 0
        return int(links.size) * dtype.itemsize

    def links_for(self, links: Array | None, dtype: np.dtype) -> Array | None:
        """The links ``[mu, parity, site, 3, 3]`` in the fields' precision; None where nothing is displaced.

        Raises InputError where they are missing.
        """
        if not self.longest:
            return None
        if links is None:
            raise InputError(f"displacements {self.displacements} need the links they go along")
        return links.astype(dtype, copy=False)

    def between(
        self, left: Array, right: Array, links: Array | None, first: int
    ) -> Iterator[tuple[int, Array]]:
        """(number of a displacement D, sum_x left_i^dag e^{ipx} D right_j of all momenta), one after another.

        left, right: ``[time, 2, site, 3, column]`` of one dtype, the slices first, first + 1, ... of the
        lattice; links: of `links_for`. Sums are complex128 ``[momentum, time, left column, right column]``,
        overwritten by the next.
        """
        gram = slice_products.slice_gram
        steps = [slices_like(right) for _ in range(min(2, self.longest))]
        scratch = (steps[0], steps[-1]) if steps else (right, right)
        weighted = slices_like(right) if any(map(any, self.momenta)) else right
        shape = (len(self.momenta), len(left), left.shape[-1], right.shape[-1])
        products = field_like(right, shape, np.complex128)
        for number, word in enumerate(self.displacements):
            moved = displaced(links, self.lattice, right, word, scratch, first)
            for momentum, product in zip(self.momenta, products, strict=True):
                field = moved
                if any(momentum):
                    phases = slice_phases(self.lattice, momentum, first, right)
                    field = slice_products.weighted(moved, phases, weighted)
                gram(left, field, product)
            yield number, products


def slice_phases(lattice: Lattice, momentum: Sequence[int], first: int, like: Array) -> Array:
    """e^{ipx} on the slices first, first + 1, ... of a field: ``[time, parity, site of the slice]``."""
    extents = np.array(lattice.extents[:3])
    # on slice t the sites of parity p lie as those of parity (p + t) % 2 do on slice 0
    slices = Lattice((*lattice.extents[:3], 2))
    coordinates = np.stack([slices.coordinates(p)[: lattice.sites_per_slice, :3] for p in (EVEN, ODD)])
    turns = (coordinates.astype(np.int64) * np.asarray(momentum) % extents / extents).sum(axis=-1)
    table = to_device_like(np.exp(2j * np.pi * turns).astype(like.dtype), like)
    parity = (first + np.arange(len(like))[:, None] + np.arange(2)) % 2
    phases = slices_like(like, like.shape[:3])
    slice_products.put_rows(table, parity, phases)
    return phases

"""The Galerkin operator P^H B P of the staggered normal operator B = -D_eo D_oe on even sites.

    A_c x(s) = 4 m^2 x(s) + sum_d Y_d(s) x(s + o_d),      P^H P = 1: the mass is a shift

B is Hermitian and reaches six sites with long links: 41 offsets o_d between aggregates of 4^4 sites, 33 of
6^4. Offsets that lead to the same site of a small grid are one. P^H B P is computed from fields that are
columns of P on the aggregates of one colour, of which no two reach one aggregate (T. F. Coleman, J. J. More,
SIAM J. Numer. Anal. 20 (1983) 187). Products are in double precision and links are rounded once, so that
the lowest eigenvalue of A_c, which may be as small as 4 m^2, stays that of P^H A P.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.kernels import aggregation, block_blas, coarse_dslash
from stages.lqcd.kernels.coarse_dslash import PackedCoarseLinks
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.multigrid.aggregates import Aggregates, Grid, Prolongation, on_grid

AT_ONCE = 512
"""Aggregates whose fields are multiplied at once: copies of 48 vectors on 4^4 sites take 150 MB."""

COLUMNS = 16
"""Unit vectors whose products `CoarseNormal.dense` computes at once."""


@dataclass(frozen=True, eq=False)
class CoarseNormal:
    """A_c on fields ``[site, k, N]`` of `grid`, arrays of `xp`: packed links, and shift = 4 m^2."""

    grid: Grid
    packed: PackedCoarseLinks
    xp: ModuleType
    shift: float = 0.0

    hermitian = True
    positive_definite = True

    @property
    def dtype(self) -> np.dtype:
        return self.packed.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.grid.sites, self.packed.components)

    @property
    def unknowns(self) -> int:
        return self.grid.sites * self.packed.components

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = on_grid(self.grid, x, x.shape[1:]) if out is None else out
        return coarse_dslash.coarse_dslash(self.packed, x, out, diagonal=x, a=self.shift)

    def astype(self, dtype: DTypeLike) -> CoarseNormal:
        """Itself: links have one precision. Raises InputError for another one."""
        if self.dtype != dtype:
            raise InputError(f"this coarse operator is {self.dtype}, and has no form in {np.dtype(dtype)}")
        return self

    def dense(self) -> NDArray[np.complex128]:
        """The matrix of A_c on the host, from its products with the unit vectors."""
        size, sites = self.unknowns, self.grid.sites
        matrix = np.empty((size, size), complex)
        width = min(block_blas.widest(self.xp), COLUMNS)
        for first in range(0, size, width):
            unit = np.zeros((size, width), self.dtype)
            np.fill_diagonal(unit[first:], 1)
            field = to_device_like(unit.reshape(sites, -1, width), self.packed.neighbours)
            columns = as_numpy(self.apply(field)).reshape(size, width)
            matrix[:, first : first + width] = columns[:, : size - first]
        return matrix


def galerkin_normal(B: SquaredDslash, P: Prolongation) -> CoarseNormal:
    """P^H B P for P on even sites, with links of the dtype of P; B is used in double precision."""
    grid, vectors = P.aggregates.coarse, P.vectors
    sites = to_device_like(P.aggregates.even_sites, vectors)
    offsets = coarse_offsets(P.aggregates, long=B.dslash.links.long is not None)  # type: ignore[attr-defined]
    neighbours = neighbours_at(grid, offsets)
    colours = coloured(grid, offsets)
    k, B = P.vector_count, B.astype(np.complex128)
    links = on_grid(grid, vectors, (len(offsets), k, k))
    F = field_like(vectors, (*B.shape, k), np.complex128)
    for colour in range(colours.max() + 1):
        mine = to_device_like(np.flatnonzero(colours == colour), vectors)
        assign(F, 0)
        aggregation.scattered(vectors[mine], sites[mine], F)
        image = B.apply(F)
        reached = np.nonzero(colours[neighbours] == colour)
        for first in range(0, len(reached[0]), AT_ONCE):
            s, d = (to_device_like(each[first : first + AT_ONCE], vectors) for each in reached)
            rows = field_like(vectors, (len(s), *vectors.shape[1:]), np.complex128)
            aggregation.gather(image, sites[s], rows)
            links[s, d] = (vectors[s, 0].conj().swapaxes(-1, -2) @ rows[:, 0]).astype(links.dtype)
    return CoarseNormal(grid, coarse_dslash.pack(links, neighbours), B.xp)


def coarse_offsets(aggregates: Aggregates, long: bool) -> NDArray[np.int64]:
    """Offsets (x, y, z, t) ``[d, 4]`` of the aggregates that two hops lead to, one for each that differs."""
    hops = (-3, -1, 1, 3) if long else (-1, 1)
    twice = sorted({a + b for a, b in product(hops, hops)})
    found = set()
    for mu in range(4):
        for moved in _moved(aggregates.extents[mu], twice):
            found.add(_offset({mu: moved}))
    for mu, nu in combinations(range(4), 2):
        for there in product(*(_moved(aggregates.extents[axis], hops) for axis in (mu, nu))):
            found.add(_offset(dict(zip((mu, nu), there, strict=True))))
    return np.unique(np.array(sorted(found)) % aggregates.coarse.extents, axis=0)


def _moved(extent: int, steps: tuple[int, ...] | list[int]) -> set[int]:
    """Aggregates of so many sites by which these steps lead on."""
    return {(x + step) // extent for x in range(extent) for step in steps}


def _offset(moved: dict[int, int]) -> tuple[int, ...]:
    return tuple(moved.get(axis, 0) for axis in range(4))


def neighbours_at(grid: Grid, offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """The site at each offset from every site, int32 ``[site, d]``."""
    x, y, z, t = np.moveaxis((grid.coordinates[:, None] + offsets) % grid.extents, -1, 0)
    return np.ascontiguousarray(grid.numbers[t, z, y, x])


def coloured(grid: Grid, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Colours ``[site]``, the first that is free each time: no site has two of one colour at its offsets."""
    apart = np.unique((offsets[:, None] - offsets).reshape(-1, 4) % grid.extents, axis=0)
    conflicts = neighbours_at(grid, apart)
    colours = np.full(grid.sites, -1)
    for site, others in enumerate(conflicts):
        taken = np.unique(colours[others])
        taken = taken[taken >= 0]
        free = np.flatnonzero(taken != np.arange(len(taken)))
        colours[site] = free[0] if free.size else len(taken)
    return colours

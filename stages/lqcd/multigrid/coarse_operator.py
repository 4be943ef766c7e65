"""Galerkin operators of coarse grids, A_c = P^H A P, by their coarse links.

    A_c x(s) = X(s) x(s) + sum_d Y_d(s) x(s + d),      matrices of 2 k components, chirality slowest

A hop of A in one direction that stays in an aggregate contributes to X, one that leaves it to Y_d. Only
forward hops are computed: A is gamma5-Hermitian on every level, with gamma5 = +-1 by chirality, so that

    Y_{-mu}(s) = gamma5 Y_{+mu}(s - mu)^H gamma5

and the same holds for the parts of X (arXiv:1612.07873, section III).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.dispatch import Array, array_module, to_device_like
from stages.lqcd.kernels.fields import contiguous, empty_field, field_like
from stages.lqcd.multigrid.grid import HOPS, Grid
from stages.lqcd.multigrid.transfer import Transfer
from stages.lqcd.solvers.solution import column_blocks


class LevelOperator(Protocol):
    """An operator on fields ``[site, 2 n, N]`` that a Galerkin product can be made of."""

    @property
    def xp(self) -> ModuleType:
        """The library of its fields: `numpy` or `cupy`."""

    @property
    def grid(self) -> Grid:
        """The grid that its fields live on."""

    @property
    def dtype(self) -> np.dtype:
        """complex64 or complex128: that of the fields."""

    def local(self, x: Array) -> Array:
        """The part of the operator that does not leave a site times x."""

    @property
    def hop_factor(self) -> float:
        """The factor that `forward_hop` leaves out."""

    def forward_hop(self, mu: int, x: Array) -> Array:
        """The part of the operator that takes x(s + mu) to s, over `hop_factor`."""


@dataclass(frozen=True, eq=False)
class CoarseOperator:
    """A_c: `diagonal` X ``[site, n, n]``, `links` Y ``[site, 8, n, n]``; fields ``[site, n, N]``, n = 2 k."""

    grid: Grid
    diagonal: Array
    links: Array

    hermitian = False
    positive_definite = False
    hop_factor = 1.0

    @property
    def components(self) -> int:
        return self.links.shape[-1]

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.links.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.grid.sites, self.components)

    @property
    def adjoint(self) -> CoarseOperator:
        """gamma5 A_c gamma5."""
        signs = gamma5(self.links)
        return CoarseOperator(self.grid, signs * self.diagonal * signs.T, signs * self.links * signs.T)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        return coarse_dslash.coarse_dslash(self._packed, x, out)

    def local(self, x: Array) -> Array:
        out = field_like(x)
        return coarse_dslash.coarse_dslash(self._packed_local, x, out)

    def forward_hop(self, mu: int, x: Array) -> Array:
        packed = self._pack(self.links[:, 2 * mu : 2 * mu + 1], self.grid.neighbours[:, 2 * mu : 2 * mu + 1])
        return coarse_dslash.coarse_dslash(packed, x, field_like(x))

    def astype(self, dtype: Any) -> CoarseOperator:
        if self.dtype == dtype:
            return self
        return CoarseOperator(self.grid, self.diagonal.astype(dtype), self.links.astype(dtype))

    def _pack(self, links: Array, neighbours: Array) -> Any:
        table = to_device_like(np.ascontiguousarray(neighbours), links)
        return coarse_dslash.pack(contiguous(links), table)

    @cached_property
    def _packed(self) -> Any:
        itself = np.arange(self.grid.sites, dtype=np.int32)[:, None]
        links = empty_field((self.grid.sites, 1 + HOPS, *self.links.shape[2:]), self.dtype, self.xp)
        links[:, 0], links[:, 1:] = self.diagonal, self.links
        return self._pack(links, np.concatenate([itself, self.grid.neighbours], axis=1))

    @cached_property
    def _packed_local(self) -> Any:
        return self._pack(self.diagonal[:, None], np.arange(self.grid.sites, dtype=np.int32)[:, None])


MOST_COLUMNS = 16
"""Vectors whose columns, of both chiralities, are multiplied at once: twice as many fields."""


def gamma5(like: Array) -> Array:
    """+1 and -1 by chirality, for as many components as `like` has in its last axis: real ``[n, 1]``."""
    n = like.shape[-1]
    signs = np.repeat([1.0, -1.0], n // 2)[:, None].astype(like.real.dtype)
    return to_device_like(signs, like)


def galerkin(A: LevelOperator, P: Transfer) -> CoarseOperator:
    """P^H A P for A that is gamma5-Hermitian."""
    coarse, k = P.aggregates.coarse, P.vector_count
    diagonal = field_like(P.vectors, (coarse.sites, 2 * k, 2 * k))
    inside = field_like(diagonal, (4, *diagonal.shape))
    links = field_like(diagonal, (coarse.sites, HOPS, *diagonal.shape[1:]))
    signs, factor = gamma5(diagonal), diagonal.real.dtype.type(A.hop_factor)
    for some in column_blocks(k, MOST_COLUMNS):
        columns = P.columns(slice(some.start, some.stop))
        where = np.array([*some, *(k + number for number in some)])
        diagonal[..., where] = P.restrict(A.local(columns))
        for mu in range(4):
            moved = A.forward_hop(mu, columns)
            beyond = P.restrict_packed(P.face(mu), moved) * factor
            inside[mu][..., where] = P.restrict(moved) * factor - beyond
            links[:, 2 * mu][..., where] = beyond
    for mu in range(4):
        diagonal += inside[mu] + _mirrored(inside[mu], signs)
        behind = to_device_like(coarse.neighbours[:, 2 * mu + 1], links)
        links[:, 2 * mu + 1] = _mirrored(links[behind, 2 * mu], signs)
    return CoarseOperator(coarse, diagonal, links)


def _mirrored(matrices: Array, signs: Array) -> Array:
    """gamma5 L^H gamma5."""
    return signs * matrices.conj().swapaxes(-1, -2) * signs.T

"""Galerkin operators of coarse grids, A_c = P^H A P, by their coarse links.

    A_c x(s) = X(s) x(s) + sum_d Y_d(s) x(s + d),      matrices of 2 k components, chirality slowest

A hop of A in one direction that stays in an aggregate contributes to X, one that leaves it to Y_d. Only
forward hops are computed: A is gamma5-Hermitian on every level, with gamma5 = +-1 by chirality, so that

    Y_{-mu}(s) = gamma5 Y_{+mu}(s - mu)^H gamma5

and the same holds for the parts of X (arXiv:1612.07873, section III).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.dispatch import Array, array_module, to_device_like
from stages.lqcd.kernels.fields import of_rows, on_rows
from stages.lqcd.multigrid.fields import on_grid
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

    @property
    def most_columns(self) -> int:
        """Vectors of a transfer whose columns, of both chiralities, are multiplied at once as fields."""

    def local(self, x: Array) -> Array:
        """The part of the operator that does not leave a site times x."""

    @property
    def hop_factor(self) -> float:
        """The factor that `forward_hop` leaves out."""

    def forward_hop(self, mu: int, x: Array) -> Array:
        """The part of the operator that takes x(s + mu) to s, over `hop_factor`."""

    def products(self, P: Transfer) -> Products | None:
        """The products of P^H A P where there are kernels that need no fields for them."""


class Products(Protocol):
    """Products that P^H A P is put together from."""

    def put(self, diagonal: Array, inside: list[Array], links: Array) -> None:
        """Write them all.

        What the local part of A gives, ``[aggregate, 2 k, 2 k]``; the forward hops of each direction that
        stay in an aggregate, likewise; others, in directions 2 mu of links ``[aggregate, 8, 2 k, 2 k]``.
        """


@dataclass(frozen=True, eq=False)
class CoarseOperator:
    """A_c: `diagonal` X ``[site, n, n]``, `links` Y ``[site, 8, n, n]``; fields ``[site, n, N]``, n = 2 k."""

    grid: Grid
    diagonal: Array
    links: Array

    hermitian = False
    positive_definite = False
    hop_factor = 1.0
    most_columns = 32

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
        turned = partial(of_rows, lambda matrices, signs: signs * matrices * signs.T, whole=(signs,))
        return CoarseOperator(self.grid, turned(self.diagonal), turned(self.links))

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = on_grid(self.grid, x, x.shape[1:]) if out is None else out
        return coarse_dslash.coarse_dslash(self._packed, x, out)

    def local(self, x: Array) -> Array:
        return coarse_dslash.coarse_dslash(self._packed_local, x, on_grid(self.grid, x, x.shape[1:]))

    def forward_hop(self, mu: int, x: Array) -> Array:
        d = 2 * mu
        links = of_rows(lambda each: each[:, d : d + 1].copy(), self.links)
        packed = self._pack(links, self.grid.neighbours[:, d : d + 1])
        return coarse_dslash.coarse_dslash(packed, x, on_grid(self.grid, x, x.shape[1:]))

    def products(self, P: Transfer) -> None:
        """None: fields are small here."""

    def astype(self, dtype: Any) -> CoarseOperator:
        if self.dtype == dtype:
            return self
        diagonal, links = (of_rows(lambda each: each.astype(dtype), a) for a in (self.diagonal, self.links))
        return CoarseOperator(self.grid, diagonal, links)

    def _pack(self, links: Array, neighbours: NDArray[np.int32]) -> Any:
        return coarse_dslash.pack(links, np.ascontiguousarray(neighbours))

    @cached_property
    def _packed(self) -> Any:
        itself = np.arange(self.grid.sites, dtype=np.int32)[:, None]
        links = on_grid(self.grid, self.links, (1 + HOPS, *self.links.shape[2:]))
        on_rows(_put_local_and_hops, links, self.diagonal, self.links)
        return self._pack(links, np.concatenate([itself, self.grid.neighbours], axis=1))

    @cached_property
    def _packed_local(self) -> Any:
        return self._pack(self.diagonal[:, None], np.arange(self.grid.sites, dtype=np.int32)[:, None])


def gamma5(like: Array) -> Array:
    """+1 and -1 by chirality, for as many components as `like` has in its last axis: real ``[n, 1]``."""
    n = like.shape[-1]
    signs = np.repeat([1.0, -1.0], n // 2)[:, None].astype(like.real.dtype)
    return to_device_like(signs, like)


def galerkin(A: LevelOperator, P: Transfer) -> CoarseOperator:
    """P^H A P for A that is gamma5-Hermitian."""
    coarse, k = P.aggregates.coarse, P.vector_count
    diagonal, *inside = (on_grid(coarse, P.vectors, (2 * k, 2 * k)) for _ in range(5))
    links = on_grid(coarse, P.vectors, (HOPS, 2 * k, 2 * k))
    products = A.products(P) or FieldProducts(A, P)
    products.put(diagonal, inside, links)
    behind = to_device_like(np.ascontiguousarray(coarse.neighbours[:, 1::2]), links)
    coarse_dslash.add_backward(diagonal, inside, links, behind)
    return CoarseOperator(coarse, diagonal, links)


@dataclass(frozen=True, eq=False)
class FieldProducts:
    """Products of A with the columns of P, as fields, those of some vectors at once."""

    A: LevelOperator
    P: Transfer

    def put(self, diagonal: Array, inside: list[Array], links: Array) -> None:
        A, P, k = self.A, self.P, self.P.vector_count
        factor = diagonal.real.dtype.type(A.hop_factor)
        for some in column_blocks(k, A.most_columns):
            columns = P.columns(slice(some.start, some.stop))
            where = np.array([*some, *(k + number for number in some)])
            on_rows(partial(_put_columns, where), diagonal, P.restrict(A.local(columns)))
            for mu in range(4):
                moved = A.forward_hop(mu, columns)
                beyond, all_in = P.restrict_packed(P.face(mu), moved), P.restrict(moved)
                put_hop = partial(_put_hop, where, 2 * mu, factor)
                on_rows(put_hop, inside[mu], links, all_in, beyond)


def _put_local_and_hops(matrices: Array, diagonal: Array, links: Array) -> None:
    matrices[:, 0], matrices[:, 1:] = diagonal, links


def _put_columns(where: NDArray, matrices: Array, columns: Array) -> None:
    matrices[..., where] = columns


def _put_hop(
    where: NDArray, d: int, factor: Any, inside: Array, links: Array, moved: Array, beyond: Array
) -> None:
    """The columns of a forward hop: those that leave an aggregate are links, the others stay inside."""
    leaving = beyond * factor
    inside[..., where] = moved * factor - leaving
    links[:, d][..., where] = leaving

"""The Wilson-clover operator as the finest level: all of multigrid that knows of spins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels import block_blas, clover, wilson_dslash, wilson_galerkin
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import field_like, repeat
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.multigrid.aggregates import Grid, Prolongation, on_grid
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, add_twist, galerkin, put_products


@dataclass(frozen=True)
class FineWilson:
    """M on fields ``[site, 12, N]``, the even sites first: a view of ``[parity, site, 12, N]``.

    The first six components are those of chirality + (`stages.lqcd.kernels.gamma`). S is the symmetric Schur
    complement of the even sites.
    """

    M: WilsonOperator

    components = COMPONENTS
    even = True
    hop_factor = -0.5
    most_columns = 16

    @property
    def dtype(self) -> np.dtype:
        return self.M.dtype

    @property
    def links(self) -> Array:
        return self.M.links.links

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.M.lattice.extents)

    @cached_property
    def operator(self) -> WilsonSchur:
        return WilsonSchur(self.M)

    def astype(self, dtype: DTypeLike) -> FineWilson:
        return FineWilson(self.M.astype(dtype))

    @property
    def twisted(self) -> bool:
        return self.M.mu != 0

    def twist_scaled(self, factor: float) -> FineWilson:
        return FineWilson(self.M.with_twist(factor * self.M.mu))

    def apply(self, x: Array) -> Array:
        return self.M.apply(_by_parity(x)).reshape(x.shape)

    def prepare(self, b: Array) -> tuple[Array, Array]:
        return self.operator.prepare(_by_parity(b))

    def reconstruct(self, x: Array, source: Array) -> Array:
        return self.operator.reconstruct(x, source).reshape(-1, COMPONENTS, x.shape[-1])

    def defect(self, residual: Array) -> Array:
        return self._local_on(EVEN, residual, field_like(residual))

    def extend(self, x: Array) -> None:
        self.operator.extend(_by_parity(x))

    def local(self, x: Array) -> Array:
        out, fields = on_grid(self.grid, x, x.shape[1:]), _by_parity(x)
        for parity in (EVEN, ODD):
            self._local_on(parity, fields[parity], _by_parity(out)[parity])
        return out

    def forward_hop(self, mu: int, x: Array) -> Array:
        out, fields = on_grid(self.grid, x, x.shape[1:]), _by_parity(x)
        hop, packed = wilson_dslash.wilson_hop, self.M.dslash.packed
        for parity in (EVEN, ODD):
            hop(packed[parity], 2 * mu, fields[1 - parity], _by_parity(out)[parity])
        return out

    def galerkin(self, P: Prolongation) -> CoarseOperator:
        by_kernels = wilson_galerkin.takes(P.vectors, P.aggregates.volume)
        return galerkin(P, self.put_products if by_kernels else partial(put_products, self))

    def put_products(self, P: Prolongation, diagonal: Array, inside: list[Array], links: Array) -> None:
        """Write products as `put_products` of fields does, from near-null vectors and links alone."""
        self._put_local(P, diagonal)
        M, places = self.M, wilson_galerkin.places(P.sites)
        where = wilson_galerkin.Aggregated(P.sites, places, M.lattice, P.aggregates.extents)
        for mu in range(4):
            factor = self.hop_factor * M.links.anisotropy.weights[mu]
            wilson_galerkin.put_hop(P.vectors, where, M.links.links, mu, factor, inside[mu], links)

    def _put_local(self, P: Prolongation, diagonal: Array) -> None:
        M = self.M.with_twist(0.0)
        if M.has_matrices:
            matrices = M.clover(EVEN), M.clover(ODD)
            wilson_galerkin.put_local(P.vectors, P.sites, matrices, M.lattice, diagonal)
        else:
            one = M.constant * np.eye(diagonal.shape[-1], dtype=diagonal.dtype)  # P^H P = 1
            repeat(diagonal, to_device_like(one, diagonal))
        add_twist(diagonal, self.M.twist)

    def _local_on(self, parity: int, x: Array, out: Array) -> Array:
        """The local part times x on the sites of one parity, ``[site, 12, N]``; returns `out`."""
        if not self.M.has_matrices:
            return block_blas.scale(x, self.M.constant, out)
        return clover.multiply(self.M.clover(parity), x, out)


def _by_parity(x: Array) -> Array:
    return x.reshape(2, -1, COMPONENTS, x.shape[-1])

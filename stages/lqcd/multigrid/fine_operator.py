"""The Wilson-clover operator as the finest level of a multigrid hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np

from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import block_blas, clover, wilson_dslash, wilson_galerkin
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.multigrid.fields import on_grid
from stages.lqcd.multigrid.fine_products import FineProducts
from stages.lqcd.multigrid.grid import Grid
from stages.lqcd.multigrid.transfer import Transfer


@dataclass(frozen=True)
class FineOperator:
    """M on fields ``[site, 12, N]``, the even sites first: a view of ``[parity, site, 12, N]``."""

    M: WilsonOperator

    hop_factor = -0.5
    most_columns = 16

    @property
    def xp(self) -> ModuleType:
        return self.M.dslash.xp

    @property
    def dtype(self) -> np.dtype:
        return self.M.dtype

    @property
    def components(self) -> int:
        return COMPONENTS

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.M.lattice.extents)

    def apply(self, x: Array) -> Array:
        return self.M.apply(self._by_parity(x)).reshape(x.shape)

    def local(self, x: Array) -> Array:
        out, fields = on_grid(self.grid, x, x.shape[1:]), self._by_parity(x)
        for parity in (EVEN, ODD):
            self.local_on(parity, fields[parity], self._by_parity(out)[parity])
        return out

    def forward_hop(self, mu: int, x: Array) -> Array:
        out, fields = on_grid(self.grid, x, x.shape[1:]), self._by_parity(x)
        hop, packed = wilson_dslash.wilson_hop, self.M.dslash.packed
        for parity in (EVEN, ODD):
            hop(packed[parity], 2 * mu, fields[1 - parity], self._by_parity(out)[parity])
        return out

    def products(self, P: Transfer) -> FineProducts | None:
        if not wilson_galerkin.takes(P.vectors, P.aggregates.volume):
            return None
        return FineProducts(self.M, P, self.hop_factor)

    def local_on(self, parity: int, x: Array, out: Array) -> Array:
        """A x on the sites of one parity, ``[site, 12, N]``; returns `out`."""
        if self.M.links.csw is None:
            return block_blas.scale(x, self.M.constant, out)
        return clover.multiply(self.M.clover(parity), x, out)

    def _by_parity(self, x: Array) -> Array:
        return x.reshape(2, -1, COMPONENTS, x.shape[-1])

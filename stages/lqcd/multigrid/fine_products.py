"""Parts of P^H A P of the Wilson operator, from near-null vectors and links alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import wilson_galerkin
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import on_rows
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.multigrid.transfer import Transfer


@dataclass(frozen=True, eq=False)
class FineProducts:
    """Products from near-null vectors and links: see `stages.lqcd.multigrid.coarse_operator.Products`."""

    M: WilsonOperator
    P: Transfer
    hop_factor: float

    def put(self, diagonal: Array, inside: list[Array], links: Array) -> None:
        self._put_local(diagonal)
        M, P, places = self.M, self.P, wilson_galerkin.places(self.P.sites)
        for mu in range(4):
            factor, cut = self.hop_factor * M.links.anisotropy.weights[mu], P.aggregates.extents[mu]
            hop = M.links.links, M.lattice, mu, cut, factor
            wilson_galerkin.put_hop(P.vectors, P.sites, places, *hop, inside[mu], links)

    def _put_local(self, diagonal: Array) -> None:
        M, P = self.M, self.P
        if M.links.csw is None:
            on_rows(lambda own: _put_constant(M.constant, own), diagonal)
            return
        clover = M.clover(EVEN), M.clover(ODD)
        wilson_galerkin.put_local(P.vectors, P.sites, clover, M.lattice, diagonal)


def _put_constant(constant: float, diagonal: Array) -> None:
    """P^H P = 1 times a constant."""
    numbers = np.arange(diagonal.shape[-1])
    diagonal[...] = 0
    diagonal[:, numbers, numbers] = constant

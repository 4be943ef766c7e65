"""Direction-doubled, pre-daggered, signed links."""

from __future__ import annotations

from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS, displacements
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import Lattice


def doubled_links(fat: Array, long: Array | None, lattice: Lattice, parity: int, out: Array) -> None:
    """out(x) = X_mu(x), -X_mu(x-mu)^dag, N_mu(x), -N_mu(x-3mu)^dag for the sites x of `parity`, every mu.

    fat X, long N complex128 ``[mu, parity, site, 3, 3]``; out complex ``[site, 16, 3, 3]``, 8 without `long`.
    """
    directions = NAIVE_DIRECTIONS if long is None else HISQ_DIRECTIONS
    for d, (mu, hops) in enumerate(displacements(directions)):
        field: Array = fat if abs(hops) == 1 else long
        if hops > 0:
            out[:, d] = field[mu, parity]
        else:
            origin = array_module(fat).asarray(lattice.neighbour(parity, mu, hops))
            out[:, d] = -field[mu, 1 - parity][origin].conj().swapaxes(-1, -2)

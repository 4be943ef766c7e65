"""Gathers and batched products, a direction at a time."""

from __future__ import annotations

from stages.lqcd.kernels.directions import SPATIAL_DIRECTIONS, displacements
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def doubled_links(fat: Array, long: Array | None, lattice: Lattice, parity: int, out: Array) -> None:
    sign = 1 if out.shape[1] == SPATIAL_DIRECTIONS else -1
    for d, (mu, hops) in enumerate(displacements(out.shape[1])):
        links = long if long is not None and abs(hops) == 3 else fat
        start = slice(None) if hops > 0 else lattice.neighbour(parity, mu, hops)
        along = links[mu, parity if hops > 0 else 1 - parity][start]
        out[:, d] = along if hops > 0 else sign * along.conj().swapaxes(-1, -2)


def long_links(links: Array, lattice: Lattice, coefficient: float, out: Array) -> None:
    xp = array_module(links)
    for mu in range(4):
        for parity in (EVEN, ODD):
            opposite = 1 - parity
            one = xp.asarray(lattice.neighbour(parity, mu, 1))
            two = xp.asarray(lattice.neighbour(opposite, mu, 1))[one]
            product = links[mu, parity] @ links[mu, opposite][one] @ links[mu, parity][two]
            out[mu, parity] = coefficient * product

"""Gathers and batched products."""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def long_links(links: Array, lattice: Lattice, coefficient: float, out: Array) -> None:
    xp = array_module(links)
    for mu in range(4):
        for parity in (EVEN, ODD):
            opposite = 1 - parity
            one = xp.asarray(lattice.neighbour(parity, mu, 1))
            two = xp.asarray(lattice.neighbour(opposite, mu, 1))[one]
            product = links[mu, parity] @ links[mu, opposite][one] @ links[mu, parity][two]
            out[mu, parity] = coefficient * product

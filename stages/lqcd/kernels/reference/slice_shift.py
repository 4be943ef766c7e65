"""Gathers and batched products, a slice at a time."""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int = 0
) -> Array:
    sites, xp = lattice.sites_per_slice, array_module(field)
    for t in range(len(field)):
        start = (first + t) * sites
        rows = slice(start, start + sites)
        for parity in (EVEN, ODD):
            neighbours = xp.asarray(lattice.neighbour(parity, mu, step)[rows] - start)
            if step == 1:
                matrices = links[mu, parity, rows]
            else:
                matrices = links[mu, 1 - parity, rows][neighbours].conj().swapaxes(-1, -2)
            out[t, parity] = matrices @ field[t, 1 - parity][neighbours]
    return out

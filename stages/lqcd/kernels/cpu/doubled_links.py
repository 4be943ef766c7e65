"""Gathers in NumPy."""

from __future__ import annotations

from typing import Any

from stages.lqcd.kernels.directions import (
    HISQ_DIRECTIONS,
    NAIVE_DIRECTIONS,
    SPATIAL_DIRECTIONS,
    displacements,
)
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import Lattice


def doubled_links(fat: Array, long: Array | None, lattice: Lattice, parity: int, out: Array) -> None:
    directions = NAIVE_DIRECTIONS if long is None else HISQ_DIRECTIONS
    for d, (mu, hops) in enumerate(displacements(directions)):
        field: Any = fat if abs(hops) == 1 else long
        if hops > 0:
            out[:, d] = field[mu, parity]
        else:
            origin = array_module(fat).asarray(lattice.neighbour(parity, mu, hops))
            out[:, d] = -field[mu, 1 - parity][origin].conj().swapaxes(-1, -2)


def spatial_links(links: Array, lattice: Lattice, parity: int, out: Array) -> None:
    for d, (mu, hop) in enumerate(displacements(SPATIAL_DIRECTIONS)):
        if hop == 1:
            out[:, d] = links[mu, parity]
        else:
            origin = lattice.neighbour(parity, mu, hop)
            out[:, d] = links[mu, 1 - parity][origin].conj().swapaxes(-1, -2)

"""Masks and multiplications in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T, X, Y


def boundary_signs(links: Array, lattice: Lattice, directions: Sequence[int], out: Array) -> None:
    out[...] = links
    for mu in directions:
        for parity in (EVEN, ODD):
            last = lattice.coordinates(parity)[:, mu] == lattice.extents[mu] - 1
            out[mu, parity, array_module(links).asarray(last)] *= -1


def staggered_phases(links: Array, lattice: Lattice, out: Array) -> None:
    xp = array_module(links)
    for parity in (EVEN, ODD):
        site = lattice.coordinates(parity)
        t, x, y = site[:, T], site[:, X], site[:, Y]
        for mu, exponent in enumerate((t, t + x, t + x + y, 0 * t)):
            signs = xp.asarray(1 - 2 * (exponent % 2), dtype=links.real.dtype)
            xp.multiply(links[mu, parity], signs[:, None, None], out=out[mu, parity])

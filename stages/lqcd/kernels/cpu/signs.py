"""Masks and multiplications in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T, X, Y


def boundary_signs(
    links: Array, lattice: Lattice, directions: Sequence[int], out: Array, parity: int | None
) -> None:
    out[...] = links
    for one, (part,) in _by_parity(parity, out):
        for mu in directions:
            last = lattice.coordinates(one)[:, mu] == lattice.extents[mu] - 1
            part[mu, array_module(links).asarray(last)] *= -1


def staggered_phases(links: Array, lattice: Lattice, out: Array, parity: int | None) -> None:
    xp = array_module(links)
    for one, (signed, part) in _by_parity(parity, out, links):
        site = lattice.coordinates(one)
        t, x, y = site[:, T], site[:, X], site[:, Y]
        for mu, exponent in enumerate((t, t + x, t + x + y, 0 * t)):
            signs = xp.asarray(1 - 2 * (exponent % 2), dtype=links.real.dtype)
            xp.multiply(part[mu], signs[:, None, None], out=signed[mu])


def _by_parity(parity: int | None, *fields: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Parities, and the fields' parts ``[mu, site, 3, 3]`` on their sites."""
    if parity is not None:
        yield parity, fields
        return
    for one in (EVEN, ODD):
        yield one, tuple(field[:, one] for field in fields)

"""Gathers, masks and multiplications in NumPy; products of three links compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import su3
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.directions import SPATIAL_DIRECTIONS, displacements
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T, X, Y


def doubled_links(fat: Array, long: Array | None, lattice: Lattice, parity: int, out: Array) -> None:
    """Links of `hisq_dslash.pack_fields`, or of `pack_spatial`, into `out` ``[site, direction, 3, 3]``."""
    directions = out.shape[1]
    for d, (mu, hops) in enumerate(displacements(directions)):
        field = long if long is not None and abs(hops) == 3 else fat
        if hops > 0:
            out[:, d] = field[mu, parity]
        else:
            origin = array_module(fat).asarray(lattice.neighbour(parity, mu, hops))
            back = field[mu, 1 - parity][origin].conj().swapaxes(-1, -2)
            out[:, d] = back if directions == SPATIAL_DIRECTIONS else -back


def long_links(links: NDArray, lattice: Lattice, coefficient: float, out: NDArray) -> None:
    matrices, products = (field.reshape(4, 2, -1, 9) for field in (links, out))
    for mu in range(4):
        for parity in (EVEN, ODD):
            forward = lattice.neighbour(parity, mu, 1), lattice.neighbour(1 - parity, mu, 1)
            own, opposite = matrices[mu, parity], matrices[mu, 1 - parity]
            _kernel(out.dtype)(products[mu, parity], own, opposite, *forward, coefficient)


@cache
def _kernel(dtype: np.dtype) -> Callable[..., None]:
    def product(
        low: int,
        high: int,
        out: NDArray,
        own: NDArray,
        opposite: NDArray,
        one: NDArray,
        onward: NDArray,
        coefficient: float,
    ) -> None:
        for x in prange(low, high):
            next_site = one[x]
            two = su3.times(su3.load(own, x), su3.load(opposite, next_site))
            three = su3.times(two, su3.load(own, onward[next_site]))
            for row in range(3):
                for column in range(3):
                    out[x, 3 * row + column] = coefficient * three[row][column]

    matrices, table = array_type(dtype, 2), array_type(np.int32, 1)
    signature = types.void(
        array_type(dtype, 2, writable=True), matrices, matrices, table, table, types.float64
    )
    return compiled(product, f"long_links_{dtype.name}", signature, lambda out, *others: len(out))


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

"""Masks and multiplications in NumPy; doubled links and products of three compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import su3
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.directions import SPATIAL_DIRECTIONS, displacements, neighbour_table
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T, X, Y


def doubled_links(fat: NDArray, long: NDArray | None, lattice: Lattice, parity: int, out: NDArray) -> None:
    """Links of `hisq_dslash.pack_fields`, or of `pack_spatial`, into `out` ``[site, direction, 3, 3]``.

    out: contiguous in its rows or, the last two axes swapped, in its columns.
    """
    directions, by_rows = out.shape[1], out.flags.c_contiguous
    rows = (out if by_rows else out.swapaxes(-1, -2)).reshape(len(out), 9 * directions)
    fields = [fat, fat if long is None else long]
    fields = [np.ascontiguousarray(field, fat.dtype).reshape(8, -1, 9) for field in fields]
    places = np.array([(2 * mu, hops < 0, abs(hops) > 1) for mu, hops in displacements(directions)], np.int32)
    places[:, 0] += parity ^ places[:, 1]
    sign = 1.0 if directions == SPATIAL_DIRECTIONS else -1.0
    table = neighbour_table(lattice, parity, directions)
    _doubling_kernel(fat.dtype, out.dtype)(rows, *fields, table, places, sign, by_rows)


@cache
def _doubling_kernel(fields: np.dtype, dtype: np.dtype) -> Callable[..., None]:
    def double(
        low: int,
        high: int,
        out: NDArray,
        fat: NDArray,
        long: NDArray,
        table: NDArray,
        places: NDArray,
        sign: float,
        by_rows: bool,
    ) -> None:
        for x in prange(low, high):
            for d in range(len(places)):
                field, backward, far = places[d]
                links = long[field] if far else fat[field]
                for i in range(9):
                    turned = 3 * (i % 3) + i // 3
                    place = 9 * d + (i if by_rows else turned)
                    if backward:
                        u = links[table[x, d], turned]
                        out[x, place] = complex(sign * u.real, -sign * u.imag)
                    else:
                        out[x, place] = links[x, i]

    links, table = array_type(fields, 3), array_type(np.int32, 2)
    written = array_type(dtype, 2, writable=True)
    signature = types.void(written, links, links, table, table, types.float64, types.boolean)
    name = f"doubled_links_{fields.name}_{dtype.name}"
    return compiled(double, name, signature, lambda out, *others: len(out))


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

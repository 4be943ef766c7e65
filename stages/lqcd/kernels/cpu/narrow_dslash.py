"""HISQ dslash of one right-hand side: a column of a link in a register, times one number of the neighbour.

Vectors over right-hand sides would have the two reals of a complex number. Here they hold the three colours
of the result, six reals. Some sites are worked on at once, so that one waits for its sums while others add
theirs, and the links and neighbours of sites ahead are asked for, as far as they are the next ones. The sums
are the same, in the same order, as those of many right-hand sides: so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.rows import block_count
from stages.lqcd.kernels.cpu.vector_ir import CACHE_LINE, REGISTER_BYTES, Emitter, literals
from stages.lqcd.kernels.directions import neighbour_table
from stages.lqcd.lattice.geometry import Lattice

BLOCK_SITES = 64
"""Sites that one thread takes at a time; their sums form one partial sum."""

AHEAD = 8
"""Sites ahead whose links and neighbours are asked for."""

SUMS = 8
"""Sums at once in registers, of which each waits four cycles for the last addition to it."""

REALS = 6
"""Reals of a column."""

PADDING = 2
"""Reals behind a column that a register of 8 takes with it."""

SPARE_SITES = 4
"""Sites at the end of the links of a direction, which a register takes some of with the last column. Without
them all directions would begin at the same place of a page, of which a core's first cache takes eight lines.
"""


class LinksOnce:
    """Links not doubled: each lies once, where it begins; two products with opposite parities share them.

    What both read then fits caches that doubled links do not. Made of doubled links by columns, of one parity
    or of both, when first asked for.
    """

    def __init__(self, lattice: Lattice, doubled: dict[int, NDArray]) -> None:
        self._lattice, self._doubled = lattice, doubled
        self._fields: dict[int, NDArray] = {}

    def of(self, parity: int) -> tuple[NDArray, NDArray]:
        """Links that begin at the sites of a parity, and those at their neighbours.

        ``[direction / 2, site, column, row]`` with `SPARE_SITES`. A site multiplies with its own links
        forward, and with minus the adjoint of its neighbours' backward.
        """
        return self._of_sites(parity), self._of_sites(1 - parity)

    def _of_sites(self, parity: int) -> NDArray:
        if parity not in self._fields:
            self._fields[parity] = self._gathered(parity)
        return self._fields[parity]

    def _gathered(self, parity: int) -> NDArray:
        _, directions, *_ = shape = next(iter(self._doubled.values())).shape
        ahead = parity in self._doubled
        links = self._doubled[parity if ahead else 1 - parity]
        field = np.zeros((directions // 2, shape[0] + SPARE_SITES, 3, 3), links.dtype)
        if ahead:
            field[:, : len(links)] = links[:, 0::2].swapaxes(0, 1)
            return field
        sites = neighbour_table(self._lattice, 1 - parity, directions)
        for k, columns in enumerate(field):
            columns[sites[:, 2 * k + 1]] = -links[:, 2 * k + 1].conj().swapaxes(-1, -2)
        return field


def column_registers(itemsize: int) -> list[tuple[int, int]]:
    """(byte offset, lanes) of a column's registers: one with `PADDING` in AVX-512, else of 4 and 2 lanes.

    One of 8 floats in AVX would do for both, but it takes longer to put rows together in it, and processors
    with units of 16 bytes work on it twice.
    """
    return [(0, REALS + PADDING)] if REGISTER_BYTES == 64 else [(0, 4), (4 * itemsize, 2)]


def sites_at_once(itemsize: int) -> int:
    """Sites of which a core holds the sums. Half a lattice, of even extents, has a multiple of 8."""
    return max(1, SUMS // 2 // len(column_registers(itemsize)))


MOST_SITES = SUMS // 2
"""That `sites_at_once` may be."""


@cache
def narrow_kernel(itemsize: int, directions: int, dots: bool) -> Callable[..., None]:
    """The dslash of one right-hand side; arguments as of that of many, with links of `LinksOnce`."""
    step, summed = sites_at_once(itemsize), int(dots)
    link_bytes, neighbours_bytes, site_bytes = 18 * itemsize, directions * 4, REALS * itemsize

    def dslash(
        low: int,
        high: int,
        ahead: NDArray,
        behind: NDArray,
        neighbours: NDArray,
        x: NDArray,
        diagonal: int,
        out: NDArray,
        sums: NDArray,
        diagonal_stride: int,
        a: float,
        b: float,
    ) -> None:
        first_u, first_n, first_w = ahead.ctypes.data, neighbours.ctypes.data, out.ctypes.data
        field, first_row, back = x.ctypes.data, sums.ctypes.data, behind.ctypes.data
        pitch = ahead.shape[1] * link_bytes
        for block in prange(low, high):
            if dots:
                sums[block] = 0
            row = first_row + block * 16
            for site in range(block * BLOCK_SITES, min(len(out), (block + 1) * BLOCK_SITES), step):
                u, n = first_u + site * link_bytes, first_n + site * neighbours_bytes
                v, w = diagonal + site * diagonal_stride, first_w + site * site_bytes
                _sites(u, back, pitch, n, field, v, w, row, a, b, itemsize, directions, summed)

    dtype = f"c{2 * itemsize}"
    links, block = array_type(dtype, 4), array_type(dtype, 3)
    written, sums = array_type(dtype, 3, writable=True), array_type("f8", 2, writable=True)
    reals = types.int64, types.float64, types.float64
    signature = types.void(links, links, array_type("i4", 2), block, types.int64, written, sums, *reals)
    name = f"hisq_dslash_alone_{8 * itemsize}_{directions}{'_dots' * dots}"
    return compiled(dslash, name, signature, lambda *given: block_count(len(given[5]), BLOCK_SITES))


@intrinsic(prefer_literal=True)
def _sites(
    typing: Any,
    ahead: Any,
    behind: Any,
    pitch: Any,
    neighbours: Any,
    x: Any,
    diagonal: Any,
    out: Any,
    sums: Any,
    a: Any,
    b: Any,
    itemsize: Any,
    directions: Any,
    summed: Any,
) -> Any:
    """``out = a diagonal + b sum_d links[d] x[neighbours[d]]`` for `sites_at_once` and one right-hand side.

    Takes addresses, of the links of the sites ahead and of all behind, and the bytes from a direction to the
    next between them and the others; then a and b, then literal constants: size of a real, number of
    directions, and 1 if diagonal times out, real by real, is to be added to the two float64 at `sums`.
    """
    real_bytes, direction_count, with_sums = literals(itemsize, directions, summed)
    sites, registers = sites_at_once(real_bytes), column_registers(real_bytes)
    vector_bytes = REALS * real_bytes
    link_bytes = 3 * vector_bytes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ahead, behind, pitch, n, x, diagonal, out, products, a, b = arguments[:10]
        emit = Emitter(builder, real_bytes)
        totals = [[[emit.zeros(lanes) for _, lanes in registers] for _ in range(2)] for _ in range(sites)]
        for d in range(direction_count):
            numbers = [emit.load_index(n, 4 * (site * direction_count + d)) for site in range(sites)]
            first = emit.offset(behind if d % 2 else ahead, pitch, d // 2)
            if d % 2:
                links = [emit.offset(first, number, link_bytes) for number in numbers]
            else:
                links = [builder.add(first, emit.index(site * link_bytes)) for site in range(sites)]
            for place in range(0, sites * link_bytes, CACHE_LINE):
                emit.prefetch(links[0], AHEAD * link_bytes + place)
            places = [emit.offset(x, number, vector_bytes) for number in numbers]
            for place in range(0, sites * vector_bytes, CACHE_LINE):
                emit.prefetch(places[0], AHEAD * vector_bytes + place)
            for j in range(3):
                for link, colours, sums in zip(links, places, totals, strict=True):
                    column = (_adjoint_column if d % 2 else _column)(emit, link, j)
                    for part, parts in enumerate(sums):
                        scalar = emit.load_real(colours, (2 * j + part) * real_bytes)
                        for vector, total in zip(column, parts, strict=True):
                            factor = emit.splat(scalar, vector.type.count)
                            builder.store(emit.fma(factor, vector, builder.load(total)), total)
        a, b = emit.rounded(a), emit.rounded(b)
        for site, (real, imaginary) in enumerate(totals):
            results = []
            for (place, lanes), re, im in zip(registers, real, imaginary, strict=True):
                total = emit.add_times_i(builder.load(re), builder.load(im), 1)
                width = min(lanes, REALS)
                added = emit.load(diagonal, site * vector_bytes + place, width)
                total = emit.lanes_of(total, 0, width)
                result = emit.fma(emit.splat(b, width), total, builder.fmul(emit.splat(a, width), added))
                emit.store(result, out, site * vector_bytes + place)
                results.append((added, result))
            if with_sums:
                _add_products(emit, products, results)
        return context.get_dummy_value()

    taken = (ahead, behind, pitch, neighbours, x, diagonal, out, sums, a, b)
    return types.void(*taken, itemsize, directions, summed), generate


def _column(emit: Emitter, link: Any, number: int) -> list[Any]:
    """A column of a link in registers."""
    place = number * REALS * emit.itemsize
    return [emit.load(link, place + at, lanes) for at, lanes in column_registers(emit.itemsize)]


def _adjoint_column(emit: Emitter, link: Any, number: int) -> list[Any]:
    """A column of minus the adjoint of a link: a row of it, with the signs of its real parts changed."""
    columns = []
    for at, lanes in column_registers(emit.itemsize):
        first = at // (2 * emit.itemsize)
        places = [(3 * (first + k) + number) * 2 * emit.itemsize for k in range(min(lanes, REALS) // 2)]
        vector = emit.load(link, places[0], 2)
        if len(places) > 1:
            vector = emit.joined(vector, emit.load(link, places[1], 2))
        if len(places) > 2:
            vector = emit.joined(vector, emit.load(link, places[2], 2 + PADDING))
        columns.append(emit.minus_conjugate(vector))
    return columns


def _add_products(emit: Emitter, products: Any, registers: list[tuple[Any, Any]]) -> None:
    """Add the products of the two reals, colour after colour."""
    double = Emitter(emit.builder, 8)
    total = double.load(products, 0, 2)
    for left, right in registers:
        for first in range(0, left.type.count, 2):
            a, b = (emit.doubled(emit.lanes_of(vector, first, 2)) for vector in (left, right))
            total = double.fma(a, b, total)
    double.store(total, products, 0)

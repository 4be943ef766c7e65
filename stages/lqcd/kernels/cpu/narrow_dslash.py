"""HISQ dslash of one right-hand side: a column of a link in a register, times one number of the neighbour.

Vectors over right-hand sides would have the two reals of a complex number. Here they hold the three colours
of the result, six reals. Doubled links are one stream, which memory and caches bring faster than links that
lie once, by direction, in half the bytes, and which is asked for ahead. From caches some sites are worked on
at once, so that one waits for its sums while others add theirs. From memory it is one site, whose links come
in the order in which they lie: links bound the time, and memory gives one stream faster than two, and faster
yet where it is asked for shortly before it is read. The sums are the same, in the same order, as those of
many right-hand sides: so are the bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeAlias

from stages.lqcd.kernels.cpu.vector_ir import CACHE_LINE, REGISTER_BYTES, Builder, Emitter, Value, emitted

Pair: TypeAlias = tuple[Value, Value]

AHEAD = 1024
"""Bytes ahead of those read that links from memory are asked for; those from caches a step ahead."""

SUMS = 8
"""Sums at once in registers, of which each waits four cycles for the last addition to it."""

REALS = 6
"""Reals of a column."""

PADDING = 2
"""Reals behind a column that a register of 8 takes with it; behind the last one there is room for a site."""


def column_registers(itemsize: int) -> list[tuple[int, int]]:
    """(byte offset, lanes) of a column's registers: one with `PADDING` in AVX-512, else of 4 and 2 lanes.

    One of 8 floats in AVX would do for both, but processors with units of 16 bytes work on it twice.
    """
    return [(0, REALS + PADDING)] if REGISTER_BYTES == 64 else [(0, 4), (4 * itemsize, 2)]


def sites_at_once(itemsize: int, passes: bool) -> int:
    """Sites of which a core holds the sums. Half a lattice, of even extents, has a multiple of 8.

    passes: links are not to stay in caches, which they would fill before they come again: neighbours stay.
    """
    return 1 if passes else max(1, SUMS // 2 // len(column_registers(itemsize)))


MOST_SITES = SUMS // 2
"""That `sites_at_once` may be."""

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def last_cache_bytes() -> int:
    """Size of this processor's largest cache; 32 MiB where it does not say."""
    sizes = [int(path.read_text().strip().removesuffix("K")) << 10 for path in CACHES.glob("index*/size")]
    return max(sizes, default=32 << 20)


@emitted
def narrow_sites(
    builder: Builder,
    u: Value, n: Value, x: Value, diagonal: Value, out: Value, products: Value, a: Value, b: Value,
    itemsize: int, directions: int, summed: int, passes: int,
) -> None:  # fmt: skip
    """``out = a diagonal + b sum_d links[d] x[neighbours[d]]`` for `sites_at_once` and one right-hand side.

    Takes addresses, then a and b, then literal constants: size of a real, number of directions, 1 if diagonal
    times out, real by real, is to be added to the two float64 at `sums`, and 1 if links pass by.
    """
    sites, registers = sites_at_once(itemsize, bool(passes)), column_registers(itemsize)
    vector_bytes, link_bytes = REALS * itemsize, 3 * REALS * itemsize
    step_bytes = sites * directions * link_bytes
    ahead = AHEAD if passes else step_bytes
    emit = Emitter(builder, itemsize)
    totals = [[[emit.zeros(lanes) for _, lanes in registers] for _ in range(2)] for _ in range(sites)]
    for d in range(directions):
        numbers = [emit.load_index(n, 4 * (site * directions + d)) for site in range(sites)]
        places = [emit.offset(x, number, vector_bytes) for number in numbers]
        soon, share = emit.in_order(u), step_bytes // directions
        for line in range(d * share // CACHE_LINE, (d + 1) * share // CACHE_LINE):
            emit.prefetch(soon, ahead + line * CACHE_LINE, once=bool(passes))
        for j in range(3):
            for site, sums in enumerate(totals):
                column = ((site * directions + d) * 3 + j) * vector_bytes
                for part, parts in enumerate(sums):
                    scalar = emit.load_real(places[site], (2 * j + part) * itemsize)
                    _add_column(emit, u, column, scalar, parts)
    a, b = emit.rounded(a), emit.rounded(b)
    for site, sums in enumerate(totals):
        results = _write(emit, sums, (diagonal, out), site * vector_bytes, (a, b))
        if summed:
            _add_products(emit, products, results)


def _add_column(emit: Emitter, links: Value, column: int, scalar: Value, sums: list[Value]) -> None:
    """Add a column of a link times one real to the sums of its registers."""
    for (place, lanes), total in zip(column_registers(emit.itemsize), sums, strict=True):
        vector = emit.load(links, column + place, lanes)
        product = emit.fma(emit.splat(scalar, lanes), vector, emit.builder.load(total))
        emit.builder.store(product, total)


def _write(
    emit: Emitter,
    sums: list[list[Value]],
    fields: Pair,
    site: int,
    factors: Pair,
) -> list[Pair]:
    """``out = a diagonal + b sum`` of the site at these bytes; diagonal and result of each register."""
    (diagonal, out), (a, b), results = fields, factors, []
    for (place, lanes), real, imaginary in zip(column_registers(emit.itemsize), *sums, strict=True):
        total = emit.add_times_i(emit.builder.load(real), emit.builder.load(imaginary), 1)
        width = min(lanes, REALS)
        added = emit.load(diagonal, site + place, width)
        total = emit.lanes_of(total, 0, width)
        result = emit.fma(emit.splat(b, width), total, emit.builder.fmul(emit.splat(a, width), added))
        emit.store(result, out, site + place)
        results.append((added, result))
    return results


def _add_products(emit: Emitter, products: Value, registers: list[Pair]) -> None:
    """Add the products of the two reals, colour after colour."""
    double = Emitter(emit.builder, 8)
    total = double.load(products, 0, 2)
    for left, right in registers:
        for first in range(0, left.type.count, 2):
            a, b = (emit.doubled(emit.lanes_of(vector, first, 2)) for vector in (left, right))
            total = double.fma(a, b, total)
    double.store(total, products, 0)

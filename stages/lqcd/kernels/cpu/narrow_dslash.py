"""HISQ dslash of one right-hand side: a column of a link in a register, times one number of the neighbour.

Vectors over right-hand sides would have the two reals of a complex number. Here they hold the three colours
of the result, six reals. Some sites are worked on at once, so that one waits for its sums while others add
theirs, and the links of the next are asked for: that many sites are all that a core can be asked for ahead
without losing on lattices that its caches nearly hold. The sums are the same, in the same order, as those of
many right-hand sides: so are the bits.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from stages.lqcd.kernels.cpu.vector_ir import CACHE_LINE, Emitter, literals

SITES = 4
"""Sites at once: 8 sums, of which each waits four cycles for the last addition to it. Half a lattice, of even
extents, has a multiple of 8."""

REALS, WIDTH = 6, 8
"""Reals of a column, and of the register that it takes up."""

PARTS = (0, 4), (4, 2)
"""First lane and lanes of the two halves in which a column is loaded and stored."""


@intrinsic(prefer_literal=True)
def narrow_sites(
    typing: Any,
    links: Any,
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
    """``out = a diagonal + b sum_d links[d] x[neighbours[d]]`` for `SITES` sites and one right-hand side.

    Takes addresses, then a and b, then literal constants: size of a real, number of directions, and 1 if
    diagonal times out, real by real, is to be added to the two float64 at `sums`.
    """
    real_bytes, direction_count, with_sums = literals(itemsize, directions, summed)
    vector_bytes = REALS * real_bytes
    links_bytes = SITES * direction_count * 3 * vector_bytes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u, n, x, diagonal, out, products, a, b = arguments[:8]
        emit = Emitter(builder, real_bytes)
        asked: set[int] = set()
        totals = [(emit.zeros(WIDTH), emit.zeros(WIDTH)) for _ in range(SITES)]
        for d in range(direction_count):
            places = [
                emit.offset(x, emit.load_index(n, 4 * (site * direction_count + d)), vector_bytes)
                for site in range(SITES)
            ]
            for j in range(3):
                for site, (place, sums) in enumerate(zip(places, totals, strict=True)):
                    at = ((site * direction_count + d) * 3 + j) * vector_bytes
                    column = _loaded(emit, u, at)
                    if at // CACHE_LINE not in asked:
                        asked.add(at // CACHE_LINE)
                        emit.prefetch(u, links_bytes + at)
                    for part, total in enumerate(sums):
                        scalar = emit.load_real(place, (2 * j + part) * real_bytes)
                        grown = emit.fma(emit.splat(scalar, WIDTH), column, builder.load(total))
                        builder.store(grown, total)
        a, b = emit.rounded(a), emit.rounded(b)
        for site, (real, imaginary) in enumerate(totals):
            total = emit.add_times_i(builder.load(real), builder.load(imaginary), 1)
            added = _loaded(emit, diagonal, site * vector_bytes)
            result = emit.fma(emit.splat(b, WIDTH), total, builder.fmul(emit.splat(a, WIDTH), added))
            if with_sums:
                _add_products(emit, products, added, result)
            for first, lanes in PARTS:
                place = site * vector_bytes + first * real_bytes
                emit.store(emit.lanes_of(result, first, lanes), out, place)
        return context.get_dummy_value()

    taken = (links, neighbours, x, diagonal, out, sums, a, b, itemsize, directions, summed)
    return types.void(*taken), generate


def _loaded(emit: Emitter, address: Any, offset: int) -> Any:
    """A column in the first lanes of a register; the others mean nothing."""
    return emit.joined(*(emit.load(address, offset + first * emit.itemsize, lanes) for first, lanes in PARTS))


def _add_products(emit: Emitter, products: Any, left: Any, right: Any) -> None:
    """Add the products of the two reals, colour after colour."""
    double = Emitter(emit.builder, 8)
    total = double.load(products, 0, 2)
    for colour in range(3):
        a, b = (emit.doubled(emit.lanes_of(vector, 2 * colour, 2)) for vector in (left, right))
        total = double.fma(a, b, total)
    double.store(total, products, 0)

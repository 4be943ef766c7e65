"""Wilson dslash, one site and one register's width of right-hand sides at a time.

A lane tile of a site keeps its twelve sums in registers over all directions, fully unrolled; products with
clover matrices follow while they are there. One right-hand side alone in single precision has a kernel of
its own, `stages.lqcd.kernels.cpu.narrow_wilson`; in double, where a complex number takes 16 bytes, it gains
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import prange, types
from numba.core import cgutils
from numpy.typing import NDArray

from stages.lqcd.kernels.clover import HERMITIAN, MATRIX_REALS
from stages.lqcd.kernels.cpu.clover import PackedClover
from stages.lqcd.kernels.cpu.compiled import compiled
from stages.lqcd.kernels.cpu.link_fields import doubled_links
from stages.lqcd.kernels.cpu.narrow_wilson import narrow_site
from stages.lqcd.kernels.cpu.short_numbers import through_single
from stages.lqcd.kernels.cpu.spinor_ir import (
    CHIRAL,
    NO_CLOVER,
    ON_DIAGONAL,
    ON_HOP,
    HopSums,
    clover_factors,
    clover_sums,
)
from stages.lqcd.kernels.cpu.vector_ir import CACHE_LINE, REGISTER_BYTES, Builder, Emitter, Value, emitted
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.short_numbers import HalfField, Spinors
from stages.lqcd.kernels.wilson_dslash import Weights
from stages.lqcd.lattice.geometry import Lattice

PLACES = {"hop": ON_HOP, "diagonal": ON_DIAGONAL}

CACHED_BYTES = 2 << 20
"""Fields of this size stay in a core's own cache; of larger ones the next site's neighbours are fetched.

With one right-hand side its links, too: at 16^4 that is a sixth of the time, at 8^4 it gains nothing."""


@dataclass(frozen=True)
class PackedLinks:
    """Links ``[site, 8, 3, 3]`` into the sites of `parity`, and int32 neighbours ``[site + 1, 8]``.

    Directions d = 2 mu + hop: hop 0 carries U_mu(x), hop 1 carries -U_mu(x-mu)^dag. Both are C-contiguous;
    the last row of the neighbours is there twice, because a site reads that of the next one, too.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    links: NDArray
    neighbours: NDArray[np.int32]


def pack_fields(
    links: NDArray,
    weights: Weights,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: WilsonForm = WilsonForm.MATRICES,
) -> PackedLinks:
    if weights != (1.0,) * 4:
        links = links * np.reshape(weights, (4, 1, 1, 1, 1))
    doubled = np.empty((lattice.half_volume, NAIVE_DIRECTIONS, 3, 3), dtype)
    doubled_links(links, None, lattice, parity, doubled)
    table = neighbour_table(lattice, parity, NAIVE_DIRECTIONS)
    return PackedLinks(lattice, parity, doubled.dtype, doubled, np.concatenate([table, table[-1:]]))


def wilson_dslash(
    packed: PackedLinks,
    x: Spinors,
    out: Spinors,
    *,
    sign: int = 1,
    diagonal: Spinors | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: tuple[str, PackedClover] | None = None,
) -> Spinors:
    if isinstance(x, HalfField) or isinstance(out, HalfField) or isinstance(diagonal, HalfField):
        through_single(wilson_dslash, packed, x, out, diagonal, sign=sign, a=a, b=b, clover=clover)
        return out
    place, kind, matrices = NO_CLOVER, HERMITIAN, packed.links
    if clover is not None:
        place, kind, matrices = PLACES[clover[0]], clover[1].kind, clover[1].reals
    return _apply(packed, x, out, (0, NAIVE_DIRECTIONS), place, kind, matrices, diagonal, (sign, a, b))


def wilson_hop(packed: PackedLinks, direction: int, x: NDArray, out: NDArray, *, sign: int = 1) -> NDArray:
    hops = (direction, direction + 1)
    return _apply(packed, x, out, hops, NO_CLOVER, HERMITIAN, packed.links, None, (sign, 0.0, 1.0))


def _apply(
    packed: PackedLinks,
    x: NDArray,
    out: NDArray,
    hops: tuple[int, int],
    place: int,
    kind: int,
    matrices: NDArray,
    diagonal: NDArray | None,
    factors: tuple[float, float, float],
) -> NDArray:
    sign, a, b = factors
    if diagonal is None:
        a, stride, added = 0.0, 0, np.zeros(x.shape[1:], x.dtype)
    else:
        stride, added = x.strides[0], diagonal
    arrays = (packed.links, packed.neighbours, matrices, x, added, out)
    kernel = _kernel(x.shape[2], packed.dtype.itemsize // 2, *hops, place, kind)
    kernel(*(array.ctypes.data for array in arrays), stride, x.nbytes > CACHED_BYTES, sign, a, b, len(out))
    return out


@cache
def _kernel(rhs: int, itemsize: int, first: int, stop: int, place: int, kind: int) -> Callable[..., None]:
    """The hops first, ..., stop - 1 for `rhs` right-hand sides of reals of `itemsize` bytes, on addresses.

    `diagonal_stride` is 0 where there is no diagonal: every site then adds the same block of zeros.
    """
    tile = min(2 * rhs, REGISTER_BYTES // itemsize)
    tiles, remainder = divmod(2 * rhs, tile)
    tile_bytes, alone = tile * itemsize, rhs == 1 and itemsize == 4
    links_bytes, neighbours_bytes = NAIVE_DIRECTIONS * 18 * itemsize, NAIVE_DIRECTIONS * 4
    matrix_bytes, site_bytes = 2 * MATRIX_REALS[kind] * itemsize, 2 * COMPONENTS * rhs * itemsize

    def dslash(
        low: int,
        high: int,
        links: int,
        neighbours: int,
        matrices: int,
        x: int,
        diagonal: int,
        out: int,
        diagonal_stride: int,
        fetched: int,
        sign: float,
        a: float,
        b: float,
        sites: int,
    ) -> None:
        for site in prange(low, high):
            u = links + site * links_bytes
            n = neighbours + site * neighbours_bytes
            c = matrices + site * matrix_bytes
            v = diagonal + site * diagonal_stride
            w = out + site * site_bytes
            if fetched:
                _fetch_neighbours(x, n + neighbours_bytes, site_bytes)
            if alone:
                if fetched:
                    _fetch_next(u, links_bytes)
                    _fetch_next(c, matrix_bytes)
                narrow_site(u, n, c, x, v, w, sign, a, b, itemsize, first, stop, place, kind)
                continue
            for k in range(tiles):
                i = k * tile_bytes
                _site_tile(
                    u, n, c, x + i, v + i, w + i, sign, a, b, rhs, itemsize, tile, first, stop, place, kind
                )
            if remainder:
                i = tiles * tile_bytes
                _site_tile(
                    u,
                    n,
                    c,
                    x + i,
                    v + i,
                    w + i,
                    sign,
                    a,
                    b,
                    rhs,
                    itemsize,
                    remainder,
                    first,
                    stop,
                    place,
                    kind,
                )

    signature = types.void(*[types.int64] * 8, *[types.float64] * 3, types.int64)
    name = f"wilson_dslash_{rhs}_{8 * itemsize}_{first}_{stop}_{place}_{kind}"
    return compiled(dslash, name, signature, lambda *arguments: arguments[-1])


@emitted
def _fetch_neighbours(builder: Builder, x: Value, neighbours: Value, site_bytes: int) -> None:
    """Asks for the spinors of `site_bytes` at x that a row of neighbours names."""
    emit = Emitter(builder, 4)
    for d in range(NAIVE_DIRECTIONS):
        spinor = emit.offset(x, emit.load_index(neighbours, 4 * d), site_bytes)
        with cgutils.for_range(builder, emit.index(-(-site_bytes // CACHE_LINE))) as line:
            emit.prefetch(emit.offset(spinor, line.index, CACHE_LINE), 0)


@emitted
def _fetch_next(builder: Builder, address: Value, size: int) -> None:
    """Asks for the `size` bytes after as many at an address: with one right-hand side links take the time."""
    emit = Emitter(builder, 4)
    for place in range(size, 2 * size, CACHE_LINE):
        emit.prefetch(address, place)


@emitted
def _site_tile(
    builder: Builder,
    u: Value, n: Value, matrices: Value, x: Value, diagonal: Value, out: Value, sign: Value, a: Value,
    b: Value,
    rhs: int, itemsize: int, lanes: int, first: int, stop: int, place: int, kind: int,
) -> None:  # fmt: skip
    """``out = a C' diagonal + b C sum_d hop_d`` for one site and `lanes` reals of each component.

    Takes addresses, then sign, a and b, then literal constants; `place` is what `matrices`, of this
    kind, multiply.
    """
    row_bytes = 2 * rhs * itemsize
    emit = Emitter(builder, itemsize)
    sums = HopSums(emit, row_bytes, lanes, sign)
    for d in range(first, stop):
        neighbour = emit.offset(x, emit.load_index(n, 4 * d), COMPONENTS * row_bytes)
        sums.add(d, u, neighbour)
    a, b = (emit.splat(emit.rounded(factor), lanes) for factor in (a, b))
    hops = [builder.fmul(b, total) for total in sums.totals()]
    added = [emit.load(diagonal, i * row_bytes, lanes) for i in range(COMPONENTS)]
    added = [builder.fmul(a, vector) for vector in added]
    for chirality in range(2):
        half = slice(CHIRAL * chirality, CHIRAL * (chirality + 1))
        matrix = builder.add(matrices, emit.index(chirality * MATRIX_REALS[kind] * itemsize))
        factors = clover_factors(emit, matrix, lanes, kind)
        if place == NO_CLOVER:
            results = [builder.fadd(v, w) for v, w in zip(hops[half], added[half], strict=True)]
        elif place == ON_HOP:
            results = clover_sums(emit, factors, hops[half], added[half], kind)
        else:
            results = clover_sums(emit, factors, added[half], hops[half], kind)
        for i, result in enumerate(results):
            emit.store(result, out, (CHIRAL * chirality + i) * row_bytes)

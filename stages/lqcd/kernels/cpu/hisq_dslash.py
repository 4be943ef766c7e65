"""HISQ dslash, one site and a run of right-hand sides at a time in vector registers.

One right-hand side alone has sums of its own, `stages.lqcd.kernels.cpu.narrow_dslash`.

A lane tile of a site keeps 3 colours x (Re, Im) sums in registers over all directions, fully unrolled;
right-hand sides beyond a tile are a loop over equal tiles and one narrower rest, so that compilation stays
near a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled, compiled_serial
from stages.lqcd.kernels.cpu.link_fields import doubled_links
from stages.lqcd.kernels.cpu.narrow_dslash import MOST_SITES, last_cache_bytes, narrow_sites, sites_at_once
from stages.lqcd.kernels.cpu.rows import block_count
from stages.lqcd.kernels.cpu.short_numbers import through_single
from stages.lqcd.kernels.cpu.vector_ir import (
    REGISTER_BYTES,
    REGISTERS,
    Builder,
    ComplexSums,
    Emitter,
    Value,
    emitted,
)
from stages.lqcd.kernels.directions import (
    HISQ_DIRECTIONS,
    NAIVE_DIRECTIONS,
    SPATIAL_DIRECTIONS,
    neighbour_table,
)
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.short_numbers import ShortField, Vectors
from stages.lqcd.lattice.geometry import Lattice

TILE_REGISTERS = 2 if REGISTERS == 32 else 1
"""Registers per row of a tile: with 6 sums and 3 inputs each, what the register file holds."""


BLOCK_SITES = 64
"""Sites that one thread takes at a time; their sums form one partial sum."""


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, direction, column, row]``, `neighbours` int32 ``[site, direction]`` in the opposite
    parity, both C-contiguous; the order of the directions is that of `stages.lqcd.kernels.directions`. Behind
    the last link there is room for a site.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: NDArray
    neighbours: NDArray[np.int32]
    short: bool = False


def pack_spatial(links: NDArray, lattice: Lattice, parity: int, dtype: np.dtype) -> PackedLinks:
    return _packed(links, None, lattice, parity, SPATIAL_DIRECTIONS, dtype)


def pack_fields(
    one_hop: NDArray,
    three_hops: NDArray | None,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: StaggeredForm = StaggeredForm.MATRICES,
) -> PackedLinks:
    directions = NAIVE_DIRECTIONS if three_hops is None else HISQ_DIRECTIONS
    packed = _packed(one_hop, three_hops, lattice, parity, directions, dtype)
    return replace(packed, short=form is StaggeredForm.SHORT)


def _packed(
    one_hop: NDArray,
    three_hops: NDArray | None,
    lattice: Lattice,
    parity: int,
    directions: int,
    dtype: np.dtype,
) -> PackedLinks:
    """Links by columns, with room for a site behind them."""
    columns = field_like(one_hop, (lattice.half_volume + 1, directions, 3, 3), dtype)[:-1]
    doubled_links(one_hop, three_hops, lattice, parity, columns.swapaxes(-1, -2))
    table = neighbour_table(lattice, parity, directions)
    return PackedLinks(lattice, parity, directions, columns.dtype, columns, table)


def hisq_dslash(
    packed: PackedLinks,
    x: Vectors,
    out: Vectors,
    *,
    diagonal: Vectors | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: NDArray | None = None,
) -> Vectors:
    if isinstance(x, ShortField) or isinstance(out, ShortField) or isinstance(diagonal, ShortField):
        through_single(hisq_dslash, packed, x, out, diagonal, a=a, b=b, dots=dots)
        return out
    rhs, itemsize = x.shape[2], packed.dtype.itemsize // 2
    if diagonal is None:
        a, stride, added = 0.0, 0, _zeros(rhs, packed.dtype)
    else:
        stride, added = x.strides[0], diagonal
    sums = np.empty((0 if dots is None else block_count(len(x), BLOCK_SITES), 2 * rhs))
    passes = rhs == 1 and packed.links.nbytes > last_cache_bytes()
    kernel = _kernel(rhs, itemsize, packed.directions, dots is not None, passes)
    kernel(packed.links, packed.neighbours, x, added.ctypes.data, out, sums, stride, a, b)
    if dots is not None:
        _sum_kernel()(sums, dots)
    return out


@cache
def _zeros(rhs: int, dtype: np.dtype) -> NDArray:
    """The diagonal of some sites, which all others share, where there is none."""
    return np.zeros((MOST_SITES, 3, rhs), dtype)


@cache
def _kernel(rhs: int, itemsize: int, directions: int, dots: bool, passes: bool) -> Callable[..., None]:
    """The dslash for `rhs` right-hand sides of reals of `itemsize` bytes.

    The diagonal is given by its address, because it may be `out`, and the bytes from one site to the next: 0
    where there is none. With `dots` each block of sites leaves the products of the reals of diagonal and out
    in its row of `sums`. passes: of one right-hand side, see `sites_at_once`.
    """
    alone, step = rhs == 1, sites_at_once(itemsize, passes) if rhs == 1 else 1
    tile = min(2 * rhs, TILE_REGISTERS * REGISTER_BYTES // itemsize)
    tiles, remainder = divmod(2 * rhs, tile)
    tile_bytes, row_bytes = tile * itemsize, 16 * rhs
    links_bytes, neighbours_bytes, site_bytes = directions * 18 * itemsize, directions * 4, 6 * rhs * itemsize
    summed, passing = int(dots), int(passes)

    def dslash(
        low: int,
        high: int,
        links: NDArray,
        neighbours: NDArray,
        x: NDArray,
        diagonal: int,
        out: NDArray,
        sums: NDArray,
        diagonal_stride: int,
        a: float,
        b: float,
    ) -> None:
        first_u, first_n, first_w = links.ctypes.data, neighbours.ctypes.data, out.ctypes.data
        field, first_row = x.ctypes.data, sums.ctypes.data
        for block in prange(low, high):
            row = first_row + block * row_bytes
            if dots:
                sums[block] = 0
            for site in range(block * BLOCK_SITES, min(len(out), (block + 1) * BLOCK_SITES), step):
                u = first_u + site * links_bytes
                n = first_n + site * neighbours_bytes
                v = diagonal + site * diagonal_stride
                w = first_w + site * site_bytes
                if alone:
                    narrow_sites(u, n, field, v, w, row, a, b, itemsize, directions, summed, passing)
                    continue
                for k in range(tiles):
                    i = k * tile_bytes
                    s = row + k * tile * 8
                    _site_tile(
                        u, n, field + i, v + i, w + i, s, a, b, rhs, itemsize, directions, tile, summed
                    )
                if remainder:
                    i = tiles * tile_bytes
                    s = row + tiles * tile * 8
                    _site_tile(
                        u, n, field + i, v + i, w + i, s, a, b, rhs, itemsize, directions, remainder, summed
                    )

    dtype = f"c{2 * itemsize}"
    fields = array_type(dtype, 3), types.int64, array_type(dtype, 3, writable=True)
    sums = array_type("f8", 2, writable=True)
    reals = types.int64, types.float64, types.float64
    signature = types.void(array_type(dtype, 4), array_type("i4", 2), *fields, sums, *reals)
    name = f"hisq_dslash_{rhs}_{8 * itemsize}_{directions}{'_dots' * dots}{'_passes' * passes}"
    return compiled(dslash, name, signature, lambda *given: block_count(len(given[4]), BLOCK_SITES))


@cache
def _sum_kernel() -> Callable[..., None]:
    def total(sums: NDArray, dots: NDArray) -> None:
        """Real products of all blocks, then those of the two reals of each right-hand side."""
        for n in range(len(dots)):
            real = imaginary = 0.0
            for block in range(len(sums)):
                real += sums[block, 2 * n]
                imaginary += sums[block, 2 * n + 1]
            dots[n] = real + imaginary

    signature = types.void(array_type("f8", 2), array_type("f8", 1, writable=True))
    return compiled_serial(total, "hisq_dslash_dots", signature)


@emitted
def _site_tile(
    builder: Builder,
    u: Value, n: Value, x: Value, diagonal: Value, out: Value, products: Value, a: Value, b: Value,
    rhs: int, itemsize: int, directions: int, lanes: int, summed: int,
) -> None:  # fmt: skip
    """``out = a diagonal + b sum_d links[d] x[neighbours[d]]`` for one site and `lanes` reals of each colour.

    Takes addresses, then a and b, then literal constants. If `summed` is 1, diagonal times out, lane by lane
    and over the colours, is added to the `lanes` float64 at `sums`.
    """
    row_bytes = 2 * rhs * itemsize

    emit, double = Emitter(builder, itemsize), Emitter(builder, 8)
    sums = ComplexSums(emit, 3, lanes)
    for d in range(directions):
        neighbour = emit.offset(x, emit.load_index(n, 4 * d), 3 * row_bytes)
        colours = [sums.vectors(neighbour, j * row_bytes) for j in range(3)]
        for i in range(3):
            for j in range(3):
                sums.add_product(i, u, (d * 9 + j * 3 + i) * 2 * itemsize, colours[j])
    a, b = emit.rounded(a), emit.rounded(b)
    for i in range(3):
        registers = zip(sums.registers, sums.totals(i), sums.vectors(diagonal, i * row_bytes), strict=True)
        for (place, width), total, added in registers:
            scaled = builder.fmul(emit.splat(a, width), added)
            result = emit.fma(emit.splat(b, width), total, scaled)
            emit.store(result, out, i * row_bytes + place)
            if summed:
                at = place // itemsize * 8
                before = double.load(products, at, width)
                after = double.fma(emit.doubled(added), emit.doubled(result), before)
                double.store(after, products, at)

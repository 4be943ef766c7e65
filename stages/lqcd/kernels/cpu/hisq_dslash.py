"""HISQ dslash, one site and a run of right-hand sides at a time in vector registers.

A lane tile of a site keeps 3 colours x (Re, Im) sums in registers over all directions, fully unrolled;
right-hand sides beyond a tile are a loop over equal tiles and one narrower rest, so that compilation stays
near a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import compiled
from stages.lqcd.kernels.cpu.doubled_links import doubled_links
from stages.lqcd.kernels.cpu.half_field import through_single
from stages.lqcd.kernels.cpu.rows import block_count
from stages.lqcd.kernels.cpu.vector_ir import REGISTER_BYTES, REGISTERS, ComplexSums, Emitter, literals
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.lattice.geometry import Lattice

TILE_REGISTERS = 2 if REGISTERS == 32 else 1
"""Registers per row of a tile: with 6 sums and 3 inputs each, what the register file holds."""

BLOCK_SITES = 64
"""Sites that one thread takes at a time; their sums form one partial sum."""


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, direction, 3, 3]``, `neighbours` int32 ``[site, direction]`` in the opposite parity,
    both C-contiguous; the order of the directions is that of `stages.lqcd.kernels.directions`.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: NDArray
    neighbours: NDArray[np.int32]


def pack(links: NDArray, lattice: Lattice, parity: int) -> PackedLinks:
    directions = links.shape[1]
    neighbours = neighbour_table(lattice, parity, directions)
    return PackedLinks(lattice, parity, directions, links.dtype, np.ascontiguousarray(links), neighbours)


def pack_fields(
    one_hop: NDArray, three_hops: NDArray | None, lattice: Lattice, parity: int, dtype: np.dtype, narrow: bool
) -> PackedLinks:
    directions = NAIVE_DIRECTIONS if three_hops is None else HISQ_DIRECTIONS
    doubled = field_like(one_hop, (lattice.half_volume, directions, 3, 3), dtype)
    doubled_links(one_hop, three_hops, lattice, parity, doubled)
    return pack(doubled, lattice, parity)


def in_fields(one_hop: NDArray, three_hops: NDArray | None, lattice: Lattice, parity: int) -> PackedLinks:
    return pack_fields(one_hop, three_hops, lattice, parity, one_hop.dtype, False)


def hisq_dslash(
    packed: PackedLinks,
    x: NDArray | HalfField,
    out: Any,
    *,
    diagonal: NDArray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: NDArray | None = None,
) -> Any:
    if isinstance(x, HalfField):
        return through_single(hisq_dslash, packed, x, out, diagonal=diagonal, a=a, b=b, dots=dots)
    kernel = _kernel(x.shape[2], packed.dtype.itemsize // 2, packed.directions, dots is not None)
    if diagonal is None:
        a, stride, added = 0.0, 0, np.zeros(x.shape[1:], x.dtype)
    else:
        stride, added = x.strides[0], diagonal
    sums = np.zeros((block_count(len(x), BLOCK_SITES) if dots is not None else 0, 2 * x.shape[2]))
    arrays = (packed.links, packed.neighbours, x, added, out, sums)
    kernel(*(array.ctypes.data for array in arrays), stride, a, b, len(out))
    if dots is not None:
        dots[...] = sums.sum(axis=0).reshape(-1, 2).sum(axis=1)
    return out


@cache
def _kernel(rhs: int, itemsize: int, directions: int, dots: bool) -> Callable[..., None]:
    """The dslash for `rhs` right-hand sides of reals of `itemsize` bytes, on addresses.

    `diagonal_stride` is 0 where there is no diagonal: every site then adds the same block of zeros. With
    `dots` each block of sites leaves the products of the reals of diagonal and out in its row of `sums`.
    """
    tile = min(2 * rhs, TILE_REGISTERS * REGISTER_BYTES // itemsize)
    tiles, remainder = divmod(2 * rhs, tile)
    tile_bytes, row_bytes = tile * itemsize, 16 * rhs
    links_bytes, neighbours_bytes, site_bytes = directions * 18 * itemsize, directions * 4, 6 * rhs * itemsize
    summed = int(dots)

    def dslash(
        low: int,
        high: int,
        links: int,
        neighbours: int,
        x: int,
        diagonal: int,
        out: int,
        sums: int,
        diagonal_stride: int,
        a: float,
        b: float,
        sites: int,
    ) -> None:
        for block in prange(low, high):
            row = sums + block * row_bytes
            for site in range(block * BLOCK_SITES, min(sites, (block + 1) * BLOCK_SITES)):
                u = links + site * links_bytes
                n = neighbours + site * neighbours_bytes
                v = diagonal + site * diagonal_stride
                w = out + site * site_bytes
                for k in range(tiles):
                    i = k * tile_bytes
                    s = row + k * tile * 8
                    _site_tile(u, n, x + i, v + i, w + i, s, a, b, rhs, itemsize, directions, tile, summed)
                if remainder:
                    i = tiles * tile_bytes
                    s = row + tiles * tile * 8
                    _site_tile(
                        u, n, x + i, v + i, w + i, s, a, b, rhs, itemsize, directions, remainder, summed
                    )

    signature = types.void(*[types.int64] * 7, types.float64, types.float64, types.int64)
    name = f"hisq_dslash_{rhs}_{8 * itemsize}_{directions}{'_dots' * dots}"
    return compiled(dslash, name, signature, lambda *arguments: ceil(arguments[-1] / BLOCK_SITES))


@intrinsic(prefer_literal=True)
def _site_tile(
    typing: Any,
    links: Any,
    neighbours: Any,
    x: Any,
    diagonal: Any,
    out: Any,
    sums: Any,
    a: Any,
    b: Any,
    rhs: Any,
    itemsize: Any,
    directions: Any,
    lanes: Any,
    summed: Any,
) -> Any:
    """``out = a diagonal + b sum_d links[d] x[neighbours[d]]`` for one site and `lanes` reals of each colour.

    Takes addresses, then a and b, then literal constants. If `summed` is 1, diagonal times out, lane by lane
    and over the colours, is added to the `lanes` float64 at `sums`.
    """
    rhs_count, real_bytes, direction_count, lane_count, with_sums = literals(
        rhs, itemsize, directions, lanes, summed
    )
    row_bytes = 2 * rhs_count * real_bytes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u, n, x, diagonal, out, products, a, b = arguments[:8]
        emit, double = Emitter(builder, real_bytes), Emitter(builder, 8)
        sums = ComplexSums(emit, 3, lane_count)
        for d in range(direction_count):
            neighbour = emit.offset(x, emit.load_index(n, 4 * d), 3 * row_bytes)
            colours = [sums.vectors(neighbour, j * row_bytes) for j in range(3)]
            for i in range(3):
                for j in range(3):
                    sums.add_product(i, u, (d * 9 + i * 3 + j) * 2 * real_bytes, colours[j])
        a, b = emit.rounded(a), emit.rounded(b)
        for i in range(3):
            registers = zip(
                sums.registers, sums.totals(i), sums.vectors(diagonal, i * row_bytes), strict=True
            )
            for (place, width), total, added in registers:
                scaled = builder.fmul(emit.splat(a, width), added)
                result = emit.fma(emit.splat(b, width), total, scaled)
                emit.store(result, out, i * row_bytes + place)
                if with_sums:
                    at = place // real_bytes * 8
                    before = double.load(products, at, width)
                    after = double.fma(emit.doubled(added), emit.doubled(result), before)
                    double.store(after, products, at)
        return context.get_dummy_value()

    taken = (links, neighbours, x, diagonal, out, sums, a, b, rhs, itemsize, directions, lanes, summed)
    return types.void(*taken), generate

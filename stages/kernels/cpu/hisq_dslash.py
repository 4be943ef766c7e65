"""The staggered dslash on the CPU: one site and a run of right-hand sides at a time in vector registers.

A lane tile of a site keeps 3 colours x (Re, Im) sums in registers over all directions, fully unrolled;
right-hand sides beyond a tile are a loop over equal tiles and one narrower rest, so that compilation stays
near a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from stages.kernels.cpu.compiled import compiled
from stages.kernels.cpu.vector_ir import REGISTER_BYTES, REGISTERS, ComplexSums, Emitter, literals
from stages.kernels.directions import neighbour_table
from stages.kernels.operands import check_dslash, check_links
from stages.lattice.geometry import Lattice

TILE_REGISTERS = 2 if REGISTERS == 32 else 1
"""Registers per row of a tile: with 6 sums and 3 inputs each, what the register file holds."""


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, direction, 3, 3]``, `neighbours` int32 ``[site, direction]`` in the opposite parity,
    both C-contiguous; the order of the directions is that of `stages.kernels.directions`.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: NDArray
    neighbours: NDArray[np.int32]


def pack(links: NDArray, lattice: Lattice, parity: int) -> PackedLinks:
    """Complex links ``[site, 16 or 8, 3, 3]`` in this backend's layout; InputError on a wrong shape."""
    check_links(links, lattice, parity)
    directions = links.shape[1]
    neighbours = neighbour_table(lattice, parity, directions)
    return PackedLinks(lattice, parity, directions, links.dtype, np.ascontiguousarray(links), neighbours)


def hisq_dslash(
    packed: PackedLinks,
    x: NDArray,
    out: NDArray,
    *,
    diagonal: NDArray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> NDArray:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype.
    `out` may be `diagonal`, never `x`; otherwise what it held is not read. Raises InputError.
    """
    check_dslash(packed, x, out, diagonal)
    kernel = _kernel(x.shape[2], packed.dtype.itemsize // 2, packed.directions)
    if diagonal is None:
        a, stride, added = 0.0, 0, np.zeros(x.shape[1:], x.dtype)
    else:
        stride, added = x.strides[0], diagonal
    arrays = (packed.links, packed.neighbours, x, added, out)
    kernel(*(array.ctypes.data for array in arrays), stride, a, b, len(out))
    return out


@cache
def _kernel(rhs: int, itemsize: int, directions: int) -> Callable[..., None]:
    """The dslash for `rhs` right-hand sides of reals of `itemsize` bytes, on addresses.

    `diagonal_stride` is 0 where there is no diagonal: every site then adds the same block of zeros.
    """
    tile = min(2 * rhs, TILE_REGISTERS * REGISTER_BYTES // itemsize)
    tiles, rest = divmod(2 * rhs, tile)
    tile_bytes = tile * itemsize
    links_bytes, neighbours_bytes, site_bytes = directions * 18 * itemsize, directions * 4, 6 * rhs * itemsize

    def dslash(
        links: int,
        neighbours: int,
        x: int,
        diagonal: int,
        out: int,
        diagonal_stride: int,
        a: float,
        b: float,
        sites: int,
    ) -> None:
        for site in prange(sites):
            u = links + site * links_bytes
            n = neighbours + site * neighbours_bytes
            added = diagonal + site * diagonal_stride
            result = out + site * site_bytes
            for k in range(tiles):
                shift = k * tile_bytes
                _site_tile(
                    u, n, x + shift, added + shift, result + shift, a, b, rhs, itemsize, directions, tile
                )
            if rest:
                shift = tiles * tile_bytes
                _site_tile(
                    u, n, x + shift, added + shift, result + shift, a, b, rhs, itemsize, directions, rest
                )

    signature = types.void(*[types.int64] * 6, types.float64, types.float64, types.int64)
    return compiled(dslash, f"hisq_dslash_{rhs}_{8 * itemsize}_{directions}", signature)


@intrinsic(prefer_literal=True)
def _site_tile(
    typing: Any,
    links: Any,
    neighbours: Any,
    x: Any,
    diagonal: Any,
    out: Any,
    a: Any,
    b: Any,
    rhs: Any,
    itemsize: Any,
    directions: Any,
    lanes: Any,
) -> Any:
    """out = a diagonal + b sum_d links[d] x[neighbours[d]] for one site and `lanes` reals of each colour.

    Takes addresses, then a and b, then literal constants.
    """
    rhs_count, real_bytes, direction_count, lane_count = literals(rhs, itemsize, directions, lanes)
    row_bytes = 2 * rhs_count * real_bytes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u, n, x, diagonal, out, a, b = arguments[:7]
        emit = Emitter(builder, real_bytes)
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
                emit.store(emit.fma(emit.splat(b, width), total, scaled), out, i * row_bytes + place)
        return context.get_dummy_value()

    return types.void(links, neighbours, x, diagonal, out, a, b, rhs, itemsize, directions, lanes), generate

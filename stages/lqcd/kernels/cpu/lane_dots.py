"""Dot products of many columns at once: the inner step of every reduction over sites."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numba.core import cgutils
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.rows import block_count, real_rows
from stages.lqcd.kernels.cpu.vector_ir import REGISTER_BYTES, REGISTERS, Builder, Emitter, Value, emitted

TILE_BYTES = REGISTERS // 4 * REGISTER_BYTES
"""Sums in double of one tile of columns: two such tiles stay in registers over the rows."""


def dots_by_block(x: NDArray, y: NDArray, block_rows: int) -> NDArray[np.complex128]:
    """conj(x) . y of each right-hand side over each block of `block_rows` rows, complex128 ``[block, N]``.

    x and y: C-contiguous ``[..., N]`` of one shape and dtype.
    """
    rows_x, rows_y = real_rows(x), real_rows(y)
    sums = np.empty((block_count(len(rows_x), block_rows), x.shape[-1]), np.complex128)
    _kernel(x.shape[-1], rows_x.itemsize)(rows_x, rows_y, block_rows, sums)
    return sums


@cache
def _kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    row_bytes, block = 2 * rhs * itemsize, array_type(f"f{itemsize}", 2)

    def dots(low: int, high: int, x: NDArray, y: NDArray, block_rows: int, sums: NDArray) -> None:
        x_start, y_start, result = x.ctypes.data, y.ctypes.data, sums.ctypes.data
        for k in prange(low, high):
            first = k * block_rows
            rows = min(block_rows, len(x) - first)
            for n in range(rhs):
                sums[k, n] = 0
            shift = first * row_bytes
            add_lane_dots(x_start + shift, y_start + shift, rows, result + k * 16 * rhs, itemsize, rhs)

    signature = types.void(block, block, types.int64, array_type("c16", 2, writable=True))
    return compiled(dots, f"dots_{rhs}_{8 * itemsize}", signature, lambda *arguments: len(arguments[-1]))


def _tiles(reals: int) -> list[tuple[int, int]]:
    """First lane and number of lanes of each tile of a row; whole registers in powers of two.

    LLVM takes longer vectors of other lengths apart into scalars: ten times the time at 24 columns.
    """
    tiles, first = [], 0
    while first < reals:
        remainder = reals - first
        lanes = remainder if remainder <= REGISTER_BYTES // 8 else 1 << (remainder.bit_length() - 1)
        tiles.append((first, min(TILE_BYTES // 8, lanes)))
        first += tiles[-1][1]
    return tiles


@emitted
def add_lane_dots(
    builder: Builder, x: Value, y: Value, rows: Value, sums: Value, itemsize: int, rhs: int
) -> None:
    """sums[n] += sum over rows of conj(x[n]) y[n], in double.

    Takes the addresses of x and y, the number of rows, and the address of `rhs` complex128 sums; then the
    literals size of a real and number of right-hand sides. Lane products x y hold Re Re, Im Im; those of x
    with swapped y hold Re Im, Im Re; neighbours are combined once, after the last row.
    """
    emit, double = Emitter(builder, itemsize), Emitter(builder, 8)
    for first, lanes in _tiles(2 * rhs):
        straight, crossed = double.zeros(lanes), double.zeros(lanes)
        with cgutils.for_range(builder, rows) as loop:
            place = emit.offset(emit.index(first * itemsize), loop.index, 2 * rhs * itemsize)
            left = emit.doubled(emit.load(builder.add(x, place), 0, lanes))
            right = emit.doubled(emit.load(builder.add(y, place), 0, lanes))
            builder.store(double.fma(left, right, builder.load(straight)), straight)
            builder.store(double.fma(left, double.swapped(right), builder.load(crossed)), crossed)
        squares, crosses = builder.load(straight), builder.load(crossed)
        real = builder.fadd(squares, double.swapped(squares))
        imaginary = builder.fsub(crosses, double.swapped(crosses))
        previous = double.load(sums, 8 * first, lanes)
        total = builder.fadd(previous, double.even_lanes(real, imaginary))
        double.store(total, sums, 8 * first)

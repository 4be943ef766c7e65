"""The pass and the sums of block CGrQ on tensor cores: widths that are multiples of 8."""

from __future__ import annotations

from functools import cache, partial
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.block_cg import BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import multiply_add
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import on_each_device
from stages.lqcd.kernels.cuda.devices.partition import OwnWork, RowWork
from stages.lqcd.kernels.cuda.launch import (
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    REGISTERS,
    Launch,
    instance,
    real_of,
)

NARROWEST = 16
"""Below, bandwidth is the limit and tiles of 16 columns are half empty."""

LANE_REGISTERS = {"complex128": 168, "complex64": 128}
"""Of a lane, by the type of numbers. Some shapes spill then; the threads that get room gain more."""

GRAMS_CHUNK = 16
"""Rows that `tensor_grams.cu` takes at a time."""

TENSOR_STEP = "tensor_step.cu"

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)


def takes_step(x: cupy.ndarray, p: cupy.ndarray) -> bool:
    """True if `tensor_step` is for these X and P: X in double, beside P in double of its own width."""
    fitting = p.dtype == SINGLE or x.shape == p.shape
    return x.dtype == DOUBLE and fitting and fills_tiles(p.shape[-1])


def takes_grams(n: int, dtype: np.dtype) -> bool:
    """True if `tensor_grams.cu` is for blocks of this width; elsewhere `iteration_grams.cu` is faster.

    That is where a third of the tiles are half empty (N = 24), and in single precision as far as a thread's
    tile of 8 columns takes it.
    """
    return fills_tiles(n) and n != 24 and (dtype == DOUBLE or n >= 64)


def fills_tiles(n: int) -> bool:
    """True if tensor cores take blocks of this width."""
    return n % 8 == 0 and n >= NARROWEST


def tensor_step(
    x: cupy.ndarray, q: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, a: BlockCoefficients
) -> None:
    """`block_step` where `takes_step`."""
    n, rows, dtype = p.shape[-1], np.int64(p.size // p.shape[-1]), p.dtype
    own_width = x.shape == p.shape
    tiles, tiles_for_x = on_each_device(partial(_tiles, a, n, dtype))
    kernel = coefficient_tiles_launch(n, dtype, 4 if own_width else 3)
    run(kernel, a.q, a.ap, a.p, a.x, tiles, tiles_for_x)
    if not own_width:
        multiply_add(p, a.x, x, x, a.summary)
    elif dtype == SINGLE:
        run(tensor_solution_launch(n, int(rows)), x, p, tiles_for_x, a.summary, rows)
    run(tensor_step_launch(n, dtype, int(rows)), x, q, p, ap, tiles, a.summary, rows)


def _tiles(a: BlockCoefficients, n: int, dtype: np.dtype, part: int) -> tuple[cupy.ndarray, cupy.ndarray]:
    """A device's coefficients of Q, A P and P in tiles, and behind them, in single precision apart, of X."""
    if dtype == DOUBLE:
        tiles = a.workspace(f"tiles {part}", (4, n, n))
        return tiles, tiles[3]
    return a.workspace(f"tiles {part}", (3, n, n), dtype), a.workspace(f"tiles for X {part}", (n, n))


@cache
def coefficient_tiles_launch(n: int, dtype: np.dtype, matrices: int) -> Launch:
    """Three matrices of this type, or a fourth, X's in double, in the order that the kernels here read."""
    kernel, grid = instance("coefficient_tiles", dtype, n), (ceil(n * n / 256), matrices)
    return Launch(TENSOR_STEP, kernel, grid, 256, work=OwnWork())


@cache
def tensor_step_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """The pass over Q, P and A P, in double over X as well, for widths that `fills_tiles`."""
    single = (1, 2) if n == 16 else (2, 2) if n % 16 == 0 else (2, 1)
    double = (1, 2) if n == 64 else (2, 1)
    tiles = single if dtype == SINGLE else double
    return _sweep(f"tensor_step<{real_of(dtype)}, {n}", n, dtype, 3, tiles, rows)


@cache
def tensor_solution_launch(n: int, rows: int) -> Launch:
    """X in double from P in single precision, for widths that `fills_tiles`."""
    return _sweep(f"tensor_solution<{n}", n, SINGLE, 1, (1, 2 if n % 16 == 0 else 1), rows)


def _sweep(kernel: str, n: int, dtype: np.dtype, fields: int, tiles: tuple[int, int], rows: int) -> Launch:
    """A kernel that keeps rows of so many fields, in as many blocks as the multiprocessors have room for.

    kernel: lacks its last arguments: `tiles`, row tiles of 16 and column tiles of 8 of a warp, and how many
    of these blocks share a multiprocessor.
    """
    row_tiles, column_tiles = tiles
    threads, shared = 4 * n // column_tiles, fields * _tile_bytes(n, dtype, row_tiles)
    resident = _resident(threads, shared, dtype)
    blocks = min(ceil(rows / (16 * row_tiles)), resident * MULTIPROCESSORS)
    name = f"{kernel}, {row_tiles}, {column_tiles}, {resident}>"
    return Launch(TENSOR_STEP, name, (blocks,), threads, shared, work=RowWork(rows))


def _resident(threads: int, shared: int, dtype: np.dtype) -> int:
    """Blocks of threads that a multiprocessor has room for."""
    registers = threads * LANE_REGISTERS[dtype.name]
    return min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // registers, 16)


def _tile_bytes(n: int, dtype: np.dtype, row_tiles: int) -> int:
    """Rows of a block, with the padding of `StepWarp`."""
    apart, row = 16 if dtype == DOUBLE else 64, n * dtype.itemsize
    return 16 * row_tiles * (row + (apart - row) % 128)


@cache
def tensor_grams_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """The sums of `tensor_grams.cu` where it `takes_grams`; every warp has all rows of a chunk."""
    threads, shared = 32 * _warps(n), _grams_shared(n, dtype)
    resident = _resident(threads, shared, dtype)
    at_once = resident * MULTIPROCESSORS
    blocks = ceil(rows / (working_rows(n) * at_once)) * at_once
    return Launch(
        "tensor_grams.cu",
        instance("tensor_grams", dtype, n, 1, GRAMS_CHUNK, resident),
        (min(ceil(rows / GRAMS_CHUNK), blocks),),
        threads,
        shared,
        work=RowWork(rows, reads=True, at_once=at_once),
    )


def working_rows(n: int) -> int:
    """Rows that a thread or warp sums in working precision.

    512 up to N = 16; beyond, more in proportion to N^2, so that partial sums stay small beside the blocks.
    """
    return 512 * max(1, n * n // 256)


def _warps(n: int) -> int:
    """One for each group of 16 columns of each matrix."""
    return 3 * ceil(n / 16)


def _grams_shared(n: int, dtype: np.dtype) -> int:
    """A ring of three stages of three fields, and room to read past it."""
    return 3 * 3 * GRAMS_CHUNK * (n * dtype.itemsize + 32) + 8 * dtype.itemsize

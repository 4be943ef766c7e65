"""The pass and the sums of block CGrQ on tensor cores: widths that are multiples of 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.block_cg import BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import multiply_add
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import on_each_device
from stages.lqcd.kernels.cuda.devices.partition import OwnWork, RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_SHARED,
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    REGISTERS,
    Launch,
    instance,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned

NARROWEST = 16
"""Below, bandwidth is the limit and tiles of 16 columns are half empty."""

LANE_REGISTERS = {"complex128": 168, "complex64": 128}
"""Of a lane, by the type of numbers. Some shapes spill then; the threads that get room gain more."""

TENSOR_STEP = "tensor_step.cu"

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)


@dataclass(frozen=True)
class TensorStepShape:
    """Row tiles of 16 and column tiles of 8 of a warp, and blocks of threads that share a multiprocessor."""

    row_tiles: int
    column_tiles: int
    resident: int


@dataclass(frozen=True)
class TensorGramsShape:
    """Warps that share the rows of a chunk, rows of a chunk, resident blocks."""

    warp_slices: int
    chunk: int
    resident: int


def takes_step(x: cupy.ndarray, p: cupy.ndarray) -> bool:
    """True if `tensor_step` is for these X and P: X in double, beside P in double of its own width."""
    fitting = p.dtype == SINGLE or x.shape == p.shape
    return x.dtype == DOUBLE and fitting and bool(tensor_step_candidates(p.shape[-1], p.dtype))


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


@tuned
def tensor_step_launch(n: int, dtype: np.dtype, rows: int) -> Options[TensorStepShape]:
    """The pass over Q, P and A P, in double over X as well, for widths with `tensor_step_candidates`."""
    shapes = tuple(tensor_step_candidates(n, dtype))
    return Options(shapes, lambda shape: tensor_step_in_shape(n, dtype, rows, shape))


@tuned
def tensor_solution_launch(n: int, rows: int) -> Options[TensorStepShape]:
    """X in double from P in single precision, for widths with `tensor_step_candidates`."""
    shapes = tuple(tensor_solution_candidates(n))
    return Options(shapes, lambda shape: tensor_solution_in_shape(n, rows, shape))


@tuned
def tensor_grams_launch(n: int, dtype: np.dtype, rows: int) -> Options[TensorGramsShape]:
    """The sums of `tensor_grams.cu`, for widths with `tensor_grams_candidates`."""
    shapes = tuple(tensor_grams_candidates(n, dtype))
    return Options(shapes, lambda shape: tensor_grams_in_shape(n, dtype, rows, shape))


@cache
def tensor_step_in_shape(n: int, dtype: np.dtype, rows: int, shape: TensorStepShape) -> Launch:
    kernel = instance("tensor_step", dtype, n, shape.row_tiles, shape.column_tiles, shape.resident)
    return _sweep(kernel, n, rows, shape, 3 * _tile_bytes(n, dtype, shape.row_tiles))


@cache
def tensor_solution_in_shape(n: int, rows: int, shape: TensorStepShape) -> Launch:
    kernel = f"tensor_solution<{n}, {shape.row_tiles}, {shape.column_tiles}, {shape.resident}>"
    return _sweep(kernel, n, rows, shape, _tile_bytes(n, SINGLE, shape.row_tiles))


def _sweep(kernel: str, n: int, rows: int, shape: TensorStepShape, shared: int) -> Launch:
    blocks = min(ceil(rows / (16 * shape.row_tiles)), shape.resident * MULTIPROCESSORS)
    return Launch(TENSOR_STEP, kernel, (blocks,), 4 * n // shape.column_tiles, shared, work=RowWork(rows))


@cache
def tensor_step_candidates(n: int, dtype: np.dtype) -> list[TensorStepShape]:
    """Shapes worth timing, the best guess first; none for widths that are no multiples of 8."""
    if dtype == DOUBLE:
        return sorted(
            _candidates(n, dtype, 3, ((2, 1), (1, 2), (1, 1))), key=lambda shape: shape.resident == 1
        )
    return _candidates(n, dtype, 3, ((2, 2), (1, 2), (2, 1), (4, 1), (1, 1)))


@cache
def tensor_solution_candidates(n: int) -> list[TensorStepShape]:
    """Shapes worth timing for X in double from P in single precision, the best guess first."""
    return _candidates(n, SINGLE, 1, ((1, 2), (1, 1), (2, 1)))


def _candidates(
    n: int, dtype: np.dtype, fields: int, sizes: Sequence[tuple[int, int]]
) -> list[TensorStepShape]:
    """Shapes of these row and column tiles for a kernel that keeps rows of so many fields."""
    if n % 8 or n < NARROWEST:
        return []
    shapes = []
    for rows, columns in sizes:
        threads, shared = 4 * n // columns, fields * _tile_bytes(n, dtype, rows)
        resident = _resident(threads, shared, dtype)
        if n // 8 % columns == 0 and resident and shared <= BLOCK_SHARED:
            shapes.append(TensorStepShape(rows, columns, resident))
    return shapes


def _resident(threads: int, shared: int, dtype: np.dtype) -> int:
    """Blocks of threads that a multiprocessor has room for."""
    registers = threads * LANE_REGISTERS[dtype.name]
    return min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // registers, 16)


def _tile_bytes(n: int, dtype: np.dtype, row_tiles: int) -> int:
    """Rows of a block, with the padding of `StepWarp`."""
    apart, row = 16 if dtype == DOUBLE else 64, n * dtype.itemsize
    return 16 * row_tiles * (row + (apart - row) % 128)


@cache
def tensor_grams_in_shape(n: int, dtype: np.dtype, rows: int, shape: TensorGramsShape) -> Launch:
    at_once = shape.resident * MULTIPROCESSORS
    blocks = ceil(rows / (working_rows(n) * shape.warp_slices * at_once)) * at_once
    return Launch(
        "tensor_grams.cu",
        instance("tensor_grams", dtype, n, shape.warp_slices, shape.chunk, shape.resident),
        (min(ceil(rows / shape.chunk), blocks),),
        _warps(n) * shape.warp_slices * 32,
        _grams_shared(n, dtype, shape.warp_slices, shape.chunk),
        work=RowWork(rows, reads=True, at_once=at_once),
    )


@cache
def tensor_grams_candidates(n: int, dtype: np.dtype) -> list[TensorGramsShape]:
    """Shapes worth timing, the best guess first; none where `iteration_grams.cu` is faster.

    That is where a third of the tiles are half empty (N = 24), and in single precision as far as a thread's
    tile of 8 columns takes it.
    """
    if n % 8 or n < NARROWEST or n == 24 or (dtype == SINGLE and n < 64):
        return []
    shapes = []
    for slices, steps in product((1, 2, 4), (2, 4, 1)):
        chunk, threads = 8 * slices * steps, 32 * _warps(n) * slices
        shared = _grams_shared(n, dtype, slices, chunk)
        resident = _resident(threads, shared, dtype)
        if shared <= BLOCK_SHARED and threads <= 768 and resident:
            shapes.append(TensorGramsShape(slices, chunk, resident))
    return shapes


def working_rows(n: int) -> int:
    """Rows that a thread or warp sums in working precision.

    512 up to N = 16; beyond, more in proportion to N^2, so that partial sums stay small beside the blocks.
    """
    return 512 * max(1, n * n // 256)


def _warps(n: int) -> int:
    """One for each group of 16 columns of each matrix."""
    return 3 * ceil(n / 16)


def _grams_shared(n: int, dtype: np.dtype, slices: int, chunk: int) -> int:
    """A ring of three stages of three fields, room to read past it; later sums over slices."""
    ring = 3 * 3 * chunk * (n * dtype.itemsize + 32) + 8 * dtype.itemsize
    return max(ring, 8 * 8 * _warps(n) * 32 * slices // 2)

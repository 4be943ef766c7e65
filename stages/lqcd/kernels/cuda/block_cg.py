"""Kernels that stop themselves where an iteration is not ordinary: nothing waits for the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.block_cg import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import gram, multiply_add, sum_all_partials
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import Grids, grids_of, on_each_device
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_SHARED,
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    REGISTERS,
    Launch,
    check_rhs,
    instance,
    power_of_two,
)
from stages.lqcd.kernels.cuda.tensor_block_cg import (
    takes_grams,
    takes_step,
    tensor_grams_launch,
    tensor_step,
    working_rows,
)

IN_SHARED = 32
"""Up to this width the small algebra takes place in shared memory, beyond in a workspace."""


@dataclass(frozen=True)
class StepShape:
    """Rows of a lane, columns of a warp, and blocks of threads that share a multiprocessor."""

    lane_rows: int
    warp_columns: int
    resident: int


@dataclass(frozen=True)
class GramsShape:
    """Side of a thread's tile, threads that share a tile, rows of a chunk, resident blocks."""

    tile: int
    slices: int
    chunk: int
    resident: int


def repeatable(width: int, dtype: np.dtype) -> bool:
    dtype = np.dtype(dtype)
    return takes_grams(width, dtype) or grams_shape(width, dtype) is not None


def iteration_grams(p: cupy.ndarray, ap: cupy.ndarray, q: cupy.ndarray, a: BlockCoefficients) -> None:
    n, rows = p.shape[-1], p.size // p.shape[-1]
    if takes_grams(n, p.dtype):
        kernel = tensor_grams_launch(n, p.dtype, rows)
    elif grams_shape(n, p.dtype):
        kernel = iteration_grams_launch(n, p.dtype, rows)
    else:
        pap = gram(p, ap)
        a.grams[...] = cupy.stack([(pap + pap.conj().T) / 2, gram(ap, ap), gram(q, q)])
        return
    partials, parts = on_each_device(partial(_partials, a, n, grids_of(kernel)))
    run(kernel, p, ap, q, partials, np.int64(rows))
    sum_all_partials(partials, a.grams, parts)


def _partials(a: BlockCoefficients, n: int, grid: Grids, part: int) -> tuple[cupy.ndarray, np.int32]:
    """Room for the sums of each block of threads of a device, and the number of blocks."""
    blocks = grid(part)[0]
    return a.workspace(f"partial sums {part}", (blocks, 3, n, n)), np.int32(blocks)


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    w, n = a.c.shape
    workspace = a.workspace("small algebra", (small_elements(w),)) if w > IN_SHARED else np.uintp(0)
    run(
        step_coefficients_launch(w, n),
        *(a.grams, a.c, a.x, a.q, a.ap, a.p, a.workspace("new c", (w, n))),
        *(a.target, a.remains, a.summary, workspace),
        *(np.int32(rank), np.float64(unit), np.float64(DRIFT), np.float64(CONDITION)),
    )


def block_step(
    x: cupy.ndarray, q: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, a: BlockCoefficients
) -> None:
    if takes_step(x, p):
        tensor_step(x, q, p, ap, a)
        return
    n, rows = p.shape[-1], p.size // p.shape[-1]
    alike = x.shape == p.shape and x.dtype == p.dtype
    if not alike:
        multiply_add(p, a.x, x, x, a.summary)
    if step_shape(n, p.dtype):
        kernel = block_step_launch(n, p.dtype, rows, alike)
        run(kernel, x, q, p, ap, a.x, a.q, a.ap, a.p, a.summary, np.int64(rows))
        return
    if alike:
        multiply_add(p, a.x, x, x, a.summary)
    multiply_add(q, a.q, None, q, a.summary)
    multiply_add(ap, a.ap, q, q, a.summary)
    multiply_add(p, a.p, q, p, a.summary)


@cache
def block_step_launch(n: int, dtype: np.dtype, rows: int, with_x: bool) -> Launch:
    """The sweep of `block_step.cu`, with or without that of X, for blocks that have a `step_shape`."""
    check_rhs(n)
    shape = step_shape(n, dtype)
    assert shape is not None
    tile_rows = 32 * shape.lane_rows
    arguments = (n, shape.lane_rows, shape.warp_columns, shape.resident, int(with_x))
    return Launch(
        "block_step.cu",
        instance("block_step", dtype, *arguments),
        (min(ceil(rows / tile_rows), shape.resident * MULTIPROCESSORS),),
        32 * n // shape.warp_columns,
        _step_shared(n, dtype, shape.lane_rows),
        work=RowWork(rows),
    )


@cache
def step_shape(n: int, dtype: np.dtype) -> StepShape | None:
    """Two rows of a lane if they fit, in double only beyond N = 24; None where N is odd or too large."""
    words, columns = dtype.itemsize // 8, 4 if n % 4 == 0 else 2
    threads = 32 * n // columns
    if n % 2 or threads > 512:
        return None
    for rows in (1,) if words == 2 and columns == 4 and n <= 24 else (2, 1):
        shared, registers = _step_shared(n, dtype, rows), 4 * rows * columns * words + 48 + 16 * words
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // (threads * registers), 16)
        if shared <= BLOCK_SHARED and resident:
            return StepShape(rows, columns, resident)
    return None


def _step_shared(n: int, dtype: np.dtype, lane_rows: int) -> int:
    """Four matrices of coefficients, and the rows of three blocks, padded."""
    return 4 * n * n * dtype.itemsize + 3 * 32 * lane_rows * (n * dtype.itemsize + 16)


@cache
def iteration_grams_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """The sums of `iteration_grams.cu`, for blocks that have a `grams_shape`."""
    check_rhs(n)
    shape = grams_shape(n, dtype)
    assert shape is not None
    arguments = (n, shape.tile, shape.slices, shape.chunk, shape.resident)
    most = working_rows(n) * shape.slices
    at_once = shape.resident * MULTIPROCESSORS
    blocks = ceil(rows / (most * at_once)) * at_once
    return Launch(
        "iteration_grams.cu",
        instance("iteration_grams", dtype, *arguments),
        (min(ceil(rows / shape.chunk), blocks),),
        _tasks(n, shape.tile) * shape.slices,
        _grams_shared(n, dtype, shape.tile, shape.slices, shape.chunk),
        work=RowWork(rows, reads=True, at_once=at_once),
    )


@cache
def grams_shape(n: int, dtype: np.dtype) -> GramsShape | None:
    """Few threads a block and about 24 KB a ring, for three blocks on a multiprocessor.

    None where a block has more tiles than threads, or needs more registers than there are.
    """
    tile, words = 4 if n > 8 and n % 4 == 0 else 2 if n % 2 == 0 else 1, dtype.itemsize // 8
    tasks = _tasks(n, tile)
    slices = power_of_two(128 // tasks)
    unit = 2 * slices // words
    chunk = max(unit, 24576 // (3 * n * dtype.itemsize) // unit * unit)
    shared = _grams_shared(n, dtype, tile, slices, chunk)
    block_registers = 64 * ceil(tasks * slices / 64) * words * (2 * tile * tile + 48)  # to pairs of warps
    resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // block_registers, 8)
    return GramsShape(tile, slices, chunk, resident) if tasks <= 512 and resident else None


def _tasks(n: int, tile: int) -> int:
    """Tiles of the three Hermitian matrices."""
    side = n // tile
    return 3 * side * (side + 1) // 2


def _grams_shared(n: int, dtype: np.dtype, tile: int, slices: int, chunk: int) -> int:
    """A ring of three stages of three fields; at the end the same space adds up the slices."""
    ring = 3 * 3 * (chunk * n * dtype.itemsize + 64)
    return max(ring, 8 * _tasks(n, tile) * slices)


@cache
def step_coefficients_launch(n: int, nx: int) -> Launch:
    """The small algebra of `step_coefficients.cu`, one block of threads."""
    check_rhs(n, nx)
    threads = 256 if n <= 16 else 1024
    shared = 8 * (threads // 2 + n + n % 2) + (16 * small_elements(n) if n <= IN_SHARED else 0)
    kernel = f"step_coefficients<{n}, {nx}, {threads}>"
    return Launch("step_coefficients.cu", kernel, (1,), threads, shared)


def small_elements(n: int) -> int:
    """Complex doubles that the small algebra works in."""
    return 5 * n * n

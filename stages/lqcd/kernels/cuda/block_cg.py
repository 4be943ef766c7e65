"""Kernels that stop themselves where an iteration is not ordinary: nothing waits for the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import product
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
    takes_step,
    tensor_grams_candidates,
    tensor_grams_launch,
    tensor_step,
    working_rows,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, timed_where, tuned

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
    return bool(tensor_grams_candidates(width, dtype) or grams_candidates(width, dtype))


def iteration_grams(p: cupy.ndarray, ap: cupy.ndarray, q: cupy.ndarray, a: BlockCoefficients) -> None:
    n, rows = p.shape[-1], p.size // p.shape[-1]
    if tensor_grams_candidates(n, p.dtype):
        kernel = tensor_grams_launch(n, p.dtype, rows)
    elif grams_candidates(n, p.dtype):
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


@timed_where(lambda x, q, p, ap, a: bool(a.summary[0]))
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
    if step_candidates(n, p.dtype):
        kernel = block_step_launch(n, p.dtype, rows, alike)
        run(kernel, x, q, p, ap, a.x, a.q, a.ap, a.p, a.summary, np.int64(rows))
        return
    if alike:
        multiply_add(p, a.x, x, x, a.summary)
    multiply_add(q, a.q, None, q, a.summary)
    multiply_add(ap, a.ap, q, q, a.summary)
    multiply_add(p, a.p, q, p, a.summary)


@tuned
def block_step_launch(n: int, dtype: np.dtype, rows: int, with_x: bool) -> Options[StepShape]:
    """The sweep of `block_step.cu`, with or without that of X, for blocks that have `step_candidates`."""
    check_rhs(n)
    shapes = tuple(step_candidates(n, dtype))
    return Options(shapes, lambda shape: block_step_in_shape(n, dtype, rows, with_x, shape))


@cache
def block_step_in_shape(n: int, dtype: np.dtype, rows: int, with_x: bool, shape: StepShape) -> Launch:
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
def step_candidates(n: int, dtype: np.dtype) -> list[StepShape]:
    """Shapes worth timing, the best guess first; none where a block is too wide for the kernel."""
    words = dtype.itemsize // 8
    vector = 3 - words
    best = (1, 4) if words == 2 and n <= 24 else (2, 4)
    shapes = []
    for rows, columns in dict.fromkeys([best, *product((2, 1, 4), (4, 8, 2))]):
        threads, shared = 32 * n // columns, _step_shared(n, dtype, rows)
        if n % columns or columns % vector or rows * columns * words > 16 or shared > BLOCK_SHARED:
            continue
        registers = 4 * rows * columns * words + 48 + 16 * words
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // (threads * registers), 16)
        if threads <= 512 and resident:
            shapes.append(StepShape(rows, columns, resident))
    return shapes


def _step_shared(n: int, dtype: np.dtype, lane_rows: int) -> int:
    """Four matrices of coefficients, and the rows of three blocks, padded."""
    return 4 * n * n * dtype.itemsize + 3 * 32 * lane_rows * (n * dtype.itemsize + 16)


@tuned
def iteration_grams_launch(n: int, dtype: np.dtype, rows: int) -> Options[GramsShape]:
    """The sums of `iteration_grams.cu`, for blocks that have `grams_candidates`."""
    check_rhs(n)
    shapes = tuple(grams_candidates(n, dtype))
    return Options(shapes, lambda shape: iteration_grams_in_shape(n, dtype, rows, shape))


@cache
def iteration_grams_in_shape(n: int, dtype: np.dtype, rows: int, shape: GramsShape) -> Launch:
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
def grams_candidates(n: int, dtype: np.dtype) -> list[GramsShape]:
    """Shapes worth timing, the best guess first: few threads a block, three blocks on a multiprocessor."""
    shapes, words = [], dtype.itemsize // 8
    for tile, threads, ring in product((2, 4, 1) if n <= 8 else (4, 8, 2, 1), (128, 256), (24576, 12288)):
        tasks = _tasks(n, tile)
        if n % tile or tasks > 512 or tile * words > 8:
            continue
        slices = power_of_two(threads // tasks)
        unit = 2 * slices // words
        chunk = max(unit, ring // (3 * n * dtype.itemsize) // unit * unit)
        shared = _grams_shared(n, dtype, tile, slices, chunk)
        registers = words * (2 * tile * tile + 48) + (32 if tile == 8 else 0)
        block_registers = 64 * ceil(tasks * slices / 64) * registers  # to pairs of warps
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // block_registers, 8)
        if shared <= BLOCK_SHARED and resident:
            shapes.append(GramsShape(tile, slices, chunk, resident))
    return list(dict.fromkeys(shapes))[:12]


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

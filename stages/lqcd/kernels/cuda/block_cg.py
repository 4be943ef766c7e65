"""Kernels that stop themselves where an iteration is not ordinary: nothing waits for the host.

Which kernel makes the sums (`grams_launch`) and which one the step depends on the width and precision alone:

    sums   `tensor_grams`      on tensor cores, where these are faster (`takes_grams`)
           `iteration_grams`   where its tiles have registers (`iteration_grams_launch`)
           three `gram`        else, which are added in another order
    step   `tensor_step`       on tensor cores: widths that `fills_tiles`, X in double
           `block_step`        where its tiles have registers (`block_step_launch`)
           `multiply_add`      else, a product at a time

X takes part in the sweep of Q, A P and P where it is alike; of another width or precision it has its own.
"""

from __future__ import annotations

from functools import cache, partial
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.block_cg import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import gram, multiply_add, sum_all_partials
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import Grids, grids_of, on_each_device
from stages.lqcd.kernels.cuda.devices.partition import OwnWork, RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_SHARED,
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    REGISTERS,
    Launch,
    check_rhs,
    instance,
    power_of_two,
    real_of,
)

IN_SHARED = 32
"""Up to this width the small algebra takes place in shared memory, beyond in a workspace."""

NARROWEST = 16
"""Of blocks on tensor cores: below, bandwidth is the limit and tiles of 16 columns are half empty."""

LANE_REGISTERS = {"complex128": 168, "complex64": 128}
"""Of a lane, by the type of numbers. Some shapes spill then; the threads that get room gain more."""

GRAMS_CHUNK = 16
"""Rows that `tensor_grams.cu` takes at a time."""

TENSOR_STEP = "tensor_step.cu"

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)


def repeatable(width: int, dtype: np.dtype) -> bool:
    return grams_launch(width, np.dtype(dtype), 1) is not None


def iteration_grams(p: cupy.ndarray, ap: cupy.ndarray, q: cupy.ndarray, a: BlockCoefficients) -> None:
    n, rows = p.shape[-1], p.size // p.shape[-1]
    kernel = grams_launch(n, p.dtype, rows)
    if kernel is None:
        pap = gram(p, ap)
        a.grams[...] = cupy.stack([(pap + pap.conj().T) / 2, gram(ap, ap), gram(q, q)])
        return
    partials, parts = on_each_device(partial(_partials, a, n, grids_of(kernel)))
    run(kernel, p, ap, q, partials, np.int64(rows))
    sum_all_partials(partials, a.grams, parts)


def grams_launch(n: int, dtype: np.dtype, rows: int) -> Launch | None:
    """The kernel of the sums for blocks of this width; None where `gram` makes them one by one."""
    if takes_grams(n, dtype):
        return tensor_grams_launch(n, dtype, rows)
    return iteration_grams_launch(n, dtype, rows)


def block_step(
    x: cupy.ndarray, q: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, a: BlockCoefficients
) -> None:
    n, rows, dtype = p.shape[-1], np.int64(p.size // p.shape[-1]), p.dtype
    own_width = x.shape == p.shape
    if x.dtype == DOUBLE and (dtype == SINGLE or own_width) and fills_tiles(n):
        _tensor_step(x, q, p, ap, a)
        return
    alike = own_width and x.dtype == dtype
    kernel = block_step_launch(n, dtype, int(rows), alike)
    if kernel is None or not alike:
        multiply_add(p, a.x, x, x, a.summary)
    if kernel is not None:
        run(kernel, x, q, p, ap, a.x, a.q, a.ap, a.p, a.summary, rows)
        return
    multiply_add(q, a.q, None, q, a.summary)
    multiply_add(ap, a.ap, q, q, a.summary)
    multiply_add(p, a.p, q, p, a.summary)


def _tensor_step(
    x: cupy.ndarray, q: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, a: BlockCoefficients
) -> None:
    """`block_step` on tensor cores; beside P in single precision X has a sweep of its own."""
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


@cache
def block_step_launch(n: int, dtype: np.dtype, rows: int, with_x: bool) -> Launch | None:
    """The sweep of `block_step.cu`, with or without that of X; None where N is odd or too large.

    Two rows of a lane if they fit, in double only beyond N = 24.
    """
    check_rhs(n)
    words, columns = dtype.itemsize // 8, 4 if n % 4 == 0 else 2  # of a warp
    threads = 32 * n // columns
    if n % 2 or threads > 512:
        return None
    for lane_rows in (1,) if words == 2 and columns == 4 and n <= 24 else (2, 1):
        # four matrices of coefficients, and the rows of three blocks, padded
        shared = 4 * n * n * dtype.itemsize + 3 * 32 * lane_rows * (n * dtype.itemsize + 16)
        registers = 4 * lane_rows * columns * words + 48 + 16 * words
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // (threads * registers), 16)
        if shared <= BLOCK_SHARED and resident:
            kernel = instance("block_step", dtype, n, lane_rows, columns, resident, int(with_x))
            blocks = min(ceil(rows / (32 * lane_rows)), resident * MULTIPROCESSORS)
            return Launch("block_step.cu", kernel, (blocks,), threads, shared, work=RowWork(rows))
    return None


@cache
def iteration_grams_launch(n: int, dtype: np.dtype, rows: int) -> Launch | None:
    """The sums of `iteration_grams.cu`; few threads and about 24 KB a ring leave room for three blocks.

    None where a block has more tiles than threads, or needs more registers than there are.
    """
    tile, words = 4 if n > 8 and n % 4 == 0 else 2 if n % 2 == 0 else 1, dtype.itemsize // 8
    tasks = 3 * (n // tile) * (n // tile + 1) // 2  # tiles of the three Hermitian matrices
    slices = power_of_two(128 // tasks)
    unit = 2 * slices // words
    chunk = max(unit, 24576 // (3 * n * dtype.itemsize) // unit * unit)
    ring = 3 * 3 * (chunk * n * dtype.itemsize + 64)  # three stages of three fields
    shared = max(ring, 8 * tasks * slices)  # at the end the same space adds up the slices
    block_registers = 64 * ceil(tasks * slices / 64) * words * (2 * tile * tile + 48)  # to pairs of warps
    resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // block_registers, 8)
    if tasks > 512 or not resident:
        return None
    check_rhs(n)
    arguments = n, tile, slices, chunk, resident
    return _summing("iteration_grams", dtype, arguments, rows, tasks * slices, shared)


@cache
def tensor_grams_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """The sums of `tensor_grams.cu` where it `takes_grams`; every warp has all rows of a chunk.

    A warp for each group of 16 columns of each matrix.
    """
    threads = 32 * 3 * ceil(n / 16)
    # a ring of three stages of three fields, and room to read past it
    shared = 3 * 3 * GRAMS_CHUNK * (n * dtype.itemsize + 32) + 8 * dtype.itemsize
    arguments = n, 1, GRAMS_CHUNK, _resident(threads, shared, dtype)
    return _summing("tensor_grams", dtype, arguments, rows, threads, shared)


def _summing(
    kernel: str, dtype: np.dtype, arguments: tuple[int, ...], rows: int, threads: int, shared: int
) -> Launch:
    """A kernel of the file of its name that makes the sums.

    arguments: of its template, N first, then slices of a chunk, its rows, and resident blocks last. A thread
    or warp sums 512 rows in working precision up to N = 16; beyond, more in proportion to N^2, so that
    partial sums stay small beside the blocks.
    """
    n, *_, slices, chunk, resident = arguments
    summed, at_once = 512 * max(1, n * n // 256) * slices, resident * MULTIPROCESSORS
    blocks = min(ceil(rows / chunk), ceil(rows / (summed * at_once)) * at_once)
    work = RowWork(rows, reads=True, at_once=at_once)
    return Launch(f"{kernel}.cu", instance(kernel, dtype, *arguments), (blocks,), threads, shared, work=work)


def takes_grams(n: int, dtype: np.dtype) -> bool:
    """True if `tensor_grams.cu` is for blocks of this width; elsewhere `iteration_grams.cu` is faster.

    That is where a third of the tiles are half empty (N = 24), and in single precision as far as a thread's
    tile of 8 columns takes it.
    """
    return fills_tiles(n) and n != 24 and (dtype == DOUBLE or n >= 64)


def fills_tiles(n: int) -> bool:
    """True if tensor cores take blocks of this width."""
    return n % 8 == 0 and n >= NARROWEST


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

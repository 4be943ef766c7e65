"""Shapes of the kernels of block linear algebra."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.kernels.cuda.launch.base import MULTIPROCESSORS, Launch, check_rhs, instance, power_of_two


@cache
def gram(nx: int, ny: int, dtype: np.dtype, rows: int) -> Launch:
    """Partial Gram matrices, complex128 ``[grid, nx, ny]``: a ring of 3 stages of 8 to 32 KB.

    Wide blocks are bound by shared-memory reads: 8 x 4 elements a thread; narrow ones by threads: 2 x 2.
    """
    check_rhs(nx, ny)
    single = dtype == np.complex64
    tx = 8 if nx >= 16 else min(2, nx)
    ty = 4 if ny >= 16 else min(2, ny)
    tiles = ceil(nx / tx) * ceil(ny / ty)
    slices = power_of_two((64 if min(nx, ny) >= 16 else 128) // tiles)
    granule = max(2, slices)
    row_bytes = (nx + ny) * dtype.itemsize
    stage = 32768 if single and nx + ny > 64 else 16384 if single else 8192
    chunk = max(granule, stage // row_bytes // granule * granule)
    flush = ceil(16 * slices / chunk) if single else 0
    ring = 3 * chunk * row_bytes + 8 * dtype.itemsize
    scratch = 2 * tx * ty * tiles * slices // 2 * 8
    return Launch(
        "gram.cu",
        instance("gram_partials", dtype, nx, ny, tx, ty, slices, chunk, flush),
        (min(ceil(rows / chunk), 4 * MULTIPROCESSORS),),
        tiles * slices,
        max(ring, scratch),
    )


@cache
def multiply_add(nx: int, ny: int, dtype: np.dtype, rows: int) -> Launch:
    """out = base + x a: 2 x 2 elements a thread for narrow blocks, more where arithmetic limits."""
    check_rhs(nx, ny)
    single = dtype == np.complex64
    columns = min(ny, 4 if single and ny > 16 else 2)
    thread_rows = 4 if ny > (32 if single else 16) else 2
    lanes = ceil(ny / columns)
    stages_per_row = 2 * (nx * dtype.itemsize + 16)
    groups = power_of_two(min(128 // lanes, 72 * 1024 // (thread_rows * stages_per_row)))
    return Launch(
        "multiply_add.cu",
        instance("multiply_add", dtype, nx, ny, thread_rows, columns, groups),
        (min(ceil(rows / (groups * thread_rows)), 8 * MULTIPROCESSORS),),
        lanes * groups,
        nx * lanes * columns * dtype.itemsize + groups * thread_rows * stages_per_row,
    )

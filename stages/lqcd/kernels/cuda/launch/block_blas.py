"""Shapes of the kernels of block linear algebra."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.launch.base import (
    BLOCK_SHARED,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    power_of_two,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned


@dataclass(frozen=True)
class GramShape:
    """Elements of the matrix that a thread sums, threads of a block, bytes of a stage of the ring."""

    x: int
    y: int
    threads: int
    stage_bytes: int


@tuned
def gram(nx: int, ny: int, dtype: np.dtype, rows: int) -> Options[GramShape]:
    """Partial Gram matrices, complex128 ``[grid, nx, ny]``: a ring of 3 stages of rows of x and y.

    Wide blocks are bound by shared-memory reads: 8 x 4 elements a thread; narrow ones by threads: 2 x 2.
    """
    check_rhs(nx, ny)
    single = dtype == np.complex64
    tile = (8 if nx >= 16 else min(2, nx), 4 if ny >= 16 else min(2, ny))
    tiles = dict.fromkeys([tile, (min(4, nx), min(4, ny)), (min(2, nx), min(2, ny))])
    threads = 64 if min(nx, ny) >= 16 else 128
    stage = 32768 if single and nx + ny > 64 else 16384 if single else 8192
    shapes = [
        GramShape(x, y, *sizes)
        for (x, y), *sizes in product(tiles, (threads, 2 * threads), (stage, stage // 2))
    ]
    fitting = [shape for shape in shapes if gram_in_shape(nx, ny, dtype, rows, shape).threads <= 512]
    return Options(tuple(fitting), lambda shape: gram_in_shape(nx, ny, dtype, rows, shape))


def gram_in_shape(nx: int, ny: int, dtype: np.dtype, rows: int, shape: GramShape) -> Launch:
    """The sums in a given shape; at least one thread for each tile of the matrix."""
    tiles = ceil(nx / shape.x) * ceil(ny / shape.y)
    slices = power_of_two(shape.threads // tiles)
    granule = max(2, slices)
    row_bytes = (nx + ny) * dtype.itemsize
    chunk = max(granule, shape.stage_bytes // row_bytes // granule * granule)
    flush = ceil(16 * slices / chunk) if dtype == np.complex64 else 0
    ring = 3 * chunk * row_bytes + 8 * dtype.itemsize
    scratch = 2 * shape.x * shape.y * tiles * slices // 2 * 8
    return Launch(
        "gram.cu",
        instance("gram_partials", dtype, nx, ny, shape.x, shape.y, slices, chunk, flush),
        (min(ceil(rows / chunk), 4 * MULTIPROCESSORS),),
        tiles * slices,
        max(ring, scratch),
    )


@dataclass(frozen=True)
class ProductShape:
    """Rows and columns of the result that a thread computes, and threads of a block."""

    thread_rows: int
    columns: int
    threads: int


@tuned
def multiply_add(nx: int, ny: int, dtype: np.dtype, rows: int) -> Options[ProductShape]:
    """``out = base + x a``: 2 x 2 elements a thread for narrow blocks, more where arithmetic limits."""
    check_rhs(nx, ny)
    single = dtype == np.complex64
    columns = min(ny, 4 if single and ny > 16 else 2)
    thread_rows = 4 if ny > (32 if single else 16) else 2
    model = ProductShape(thread_rows, columns, 128)
    others = product((2, 4), (min(ny, 2), min(ny, 4)), (128, 256))
    shapes = dict.fromkeys([model, *(ProductShape(*sizes) for sizes in others)])
    fitting = [
        s for s in shapes if multiply_add_in_shape(nx, ny, dtype, rows, s).shared_bytes <= BLOCK_SHARED
    ]
    return Options(tuple(fitting), lambda shape: multiply_add_in_shape(nx, ny, dtype, rows, shape))


def multiply_add_in_shape(nx: int, ny: int, dtype: np.dtype, rows: int, shape: ProductShape) -> Launch:
    """The product in a given shape."""
    lanes = ceil(ny / shape.columns)
    stages_per_row = 2 * (nx * dtype.itemsize + 16)
    most = 72 * 1024 // (shape.thread_rows * stages_per_row)
    groups = power_of_two(min(shape.threads // lanes, most))
    return Launch(
        "multiply_add.cu",
        instance("multiply_add", dtype, nx, ny, shape.thread_rows, shape.columns, groups),
        (min(ceil(rows / (groups * shape.thread_rows)), 8 * MULTIPROCESSORS),),
        lanes * groups,
        nx * lanes * shape.columns * dtype.itemsize + groups * shape.thread_rows * stages_per_row,
    )

"""Products of all pairs in registers; results stay on the device."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.columns import row_threads
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import MULTIPROCESSORS, Launch, instance, power_of_two
from stages.lqcd.kernels.lane_gram import NOISE

GRAM_THREADS, GRAM_BLOCKS = 128, 4
"""Of a block that sums the products of a few fields, and blocks on a multiprocessor: with four fields and 16
right-hand sides 0.90 of the copy bandwidth of an H200, with three blocks 0.80."""


def lane_gram(xs: cupy.ndarray) -> cupy.ndarray:
    count, n, rows = len(xs), xs.shape[-1], xs.size // (len(xs) * xs.shape[-1])
    kernel = lane_gram_launch(n, xs.dtype, rows, count)
    gram = cupy.empty((count, count, n), np.complex128)
    run(kernel, xs, gram, *grid_sums(kernel, count * (count + 1) * n), np.int64(rows))
    return gram


def lane_least_squares(gram: cupy.ndarray) -> cupy.ndarray:
    count, n = len(gram), gram.shape[2]
    c = cupy.empty((count - 1, n), np.complex128)
    run(lane_least_squares_launch(n, count), gram, c, np.float64(NOISE), np.int32(n))
    return c


@cache
def lane_gram_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    """Products of `count` fields: many registers a thread, and so few threads; grid (parts, 1)."""
    vectors = row_threads(n, dtype)
    groups = power_of_two(max(1, GRAM_THREADS // vectors))
    parts = min(ceil(rows / (4 * groups)), GRAM_BLOCKS * MULTIPROCESSORS)
    name, work = instance("lane_gram", dtype, n, count, groups), RowWork(rows, sums=True)
    return Launch("lane_gram.cu", name, (parts, 1), vectors * groups, work=work)


@cache
def lane_least_squares_launch(n: int, count: int) -> Launch:
    """A thread for each right-hand side."""
    return Launch("lane_gram.cu", f"lane_least_squares<double, {count}>", (ceil(n / 32),), 32)

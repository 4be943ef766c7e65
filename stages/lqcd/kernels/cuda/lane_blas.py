"""Every field is read once; results stay on the device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.arithmetic import lane_add as lane_add
from stages.lqcd.kernels.cuda.arithmetic import lane_choose as lane_choose
from stages.lqcd.kernels.cuda.arithmetic import lane_clear as lane_clear
from stages.lqcd.kernels.cuda.arithmetic import lane_divide as lane_divide
from stages.lqcd.kernels.cuda.arithmetic import lane_put_add as lane_put_add
from stages.lqcd.kernels.cuda.arithmetic import lane_scale as lane_scale
from stages.lqcd.kernels.cuda.arithmetic import lane_take as lane_take
from stages.lqcd.kernels.cuda.columns import column_shape, grid_sums
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_SHARED, MULTIPROCESSORS, Launch, instance, narrowable
from stages.lqcd.kernels.lane_blas import NOISE

LANE_FIELDS = 4
"""Fields of a basis whose sums a thread keeps: y is read once for so many of them."""

GRAM_THREADS, GRAM_BLOCKS = 128, 4
"""Of a block that sums the products of a few fields, and blocks on a multiprocessor: with four fields and 16
right-hand sides 0.90 of the copy bandwidth of an H200, with three blocks 0.80."""


def lane_dots(xs: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    kernel = lane_dots_launch(n, y.dtype, rows, count)
    sums = cupy.empty((count, n), np.complex128)
    run(kernel, xs, y, sums, *grid_sums(kernel, 2 * LANE_FIELDS * n), np.int64(rows), np.int32(count))
    return sums


def lane_update(
    y: cupy.ndarray, xs: cupy.ndarray, a: cupy.ndarray, scale: cupy.ndarray | None = None
) -> None:
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    kernel = lane_update_launch(n, y.dtype, rows, count)
    factor = np.uintp(0) if scale is None else cupy.ascontiguousarray(scale, np.complex128)
    run(kernel, y, xs, coefficients, factor, np.int64(rows), np.int32(count))


def lane_polynomial(y: cupy.ndarray, v: cupy.ndarray, c: cupy.ndarray) -> None:
    count, n, rows = len(c), y.shape[-1], y.size // y.shape[-1]
    kernel = lane_polynomial_launch(n, y.dtype, rows, count)
    run(kernel, y, v, cupy.ascontiguousarray(c, np.complex128), np.int64(rows), np.int32(count))


@narrowable
def lane_dots_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    """Sums over a basis of `count` fields; grid (parts, groups of `LANE_FIELDS` fields)."""
    fields = min(LANE_FIELDS, 1 << (count - 1).bit_length())
    shape = column_shape(n, dtype)
    kernel = instance("lane_dots", dtype, n, fields, shape.groups)
    return shape.sums("lane_blas.cu", kernel, RowWork(rows, sums=True), ceil(count / fields))


@narrowable
def lane_update_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    """``y += sum a xs`` over `count` fields, with a thread for each vector of each row (`Columns::for_one`).

    Raises InputError where the coefficients exceed a block's shared memory.
    """
    return _updates("lane_update", n, dtype, rows, count)


@narrowable
def lane_polynomial_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    """Shape of `lane_update` for two fields that are updated from the same basis."""
    return _updates("lane_polynomial", n, dtype, rows, count)


def _updates(kernel: str, n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    shared = count * n * dtype.itemsize
    if shared > BLOCK_SHARED:
        raise InputError(
            f"a lane update takes up to {BLOCK_SHARED // (n * dtype.itemsize)} fields of {n} right-hand "
            f"sides, got {count}: split the basis"
        )
    shape = column_shape(n, dtype)
    return shape.once("lane_blas.cu", instance(kernel, dtype, n, shape.groups), rows, shared)


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
    shape = replace(column_shape(n, dtype, GRAM_THREADS), blocks=GRAM_BLOCKS * MULTIPROCESSORS)
    kernel = instance("lane_gram", dtype, n, count, shape.groups)
    return shape.sums("lane_gram.cu", kernel, RowWork(rows, sums=True))


@cache
def lane_least_squares_launch(n: int, count: int) -> Launch:
    """A thread for each right-hand side."""
    return Launch("lane_gram.cu", f"lane_least_squares<double, {count}>", (ceil(n / 32),), 32)

"""Every field is read once; results stay on the device."""

from __future__ import annotations

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
from stages.lqcd.kernels.cuda.columns import ColumnShape, column_shapes, row_groups, row_threads
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import BLOCK_SHARED, Launch, instance
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned

LANE_FIELDS = 4
"""Fields of a basis whose sums a thread keeps: y is read once for so many of them."""


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


@tuned
def lane_dots_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """Sums over a basis of `count` fields; grid (parts, groups of `LANE_FIELDS` fields)."""
    fields = min(LANE_FIELDS, 1 << (count - 1).bit_length())
    slices = ceil(count / fields)

    def launch(shape: ColumnShape) -> Launch:
        parts = min(ceil(rows / (4 * shape.groups)), ceil(shape.blocks / slices))
        kernel = instance("lane_dots", dtype, n, fields, shape.groups)
        block, work = row_threads(n, dtype) * shape.groups, RowWork(rows, sums=True)
        return Launch("lane_blas.cu", kernel, (parts, slices), block, work=work)

    return Options(column_shapes(n, dtype, (256, 128), (1024, 512)), launch)


@tuned
def lane_update_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """``y += sum a xs`` over `count` fields, with a thread for each vector of each row (`Columns::for_one`).

    Raises InputError where the coefficients exceed a block's shared memory.
    """
    return _updates("lane_update", n, dtype, rows, count)


@tuned
def lane_polynomial_launch(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """Shape of `lane_update` for two fields that are updated from the same basis."""
    return _updates("lane_polynomial", n, dtype, rows, count)


def _updates(kernel: str, n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    shared = count * n * dtype.itemsize
    if shared > BLOCK_SHARED:
        raise InputError(
            f"a lane update takes up to {BLOCK_SHARED // (n * dtype.itemsize)} fields of {n} right-hand "
            f"sides, got {count}: split the basis"
        )

    def launch(shape: ColumnShape) -> Launch:
        block = row_threads(n, dtype) * shape.groups
        name = instance(kernel, dtype, n, shape.groups)
        work = RowWork(rows, shape.groups)
        return Launch("lane_blas.cu", name, (shape.blocks,), block, shared, work=work)

    groups = row_groups(n, dtype, (256, 128, 512))
    return Options(tuple(ColumnShape(g, ceil(rows / g)) for g in groups), launch)

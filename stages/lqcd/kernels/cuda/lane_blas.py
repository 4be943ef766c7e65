"""Every field is read once; results stay on the device."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.expressions import lane_add as lane_add
from stages.lqcd.kernels.expressions import lane_choose as lane_choose
from stages.lqcd.kernels.expressions import lane_divide as lane_divide
from stages.lqcd.kernels.expressions import lane_put_add as lane_put_add
from stages.lqcd.kernels.expressions import lane_scale as lane_scale
from stages.lqcd.kernels.expressions import lane_take as lane_take


def lane_dots(xs: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    kernel = columns.lane_dots(n, y.dtype, rows, count)
    sums = cupy.empty((count, n), np.complex128)
    run(kernel, xs, y, sums, *grid_sums(kernel, 2 * columns.LANE_FIELDS * n), np.int64(rows), np.int32(count))
    return sums


def lane_update(
    y: cupy.ndarray, xs: cupy.ndarray, a: cupy.ndarray, scale: cupy.ndarray | None = None
) -> None:
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    kernel = columns.lane_update(n, y.dtype, rows, count)
    factor = np.uintp(0) if scale is None else cupy.ascontiguousarray(scale, np.complex128)
    run(kernel, y, xs, coefficients, factor, np.int64(rows), np.int32(count))


def lane_polynomial(y: cupy.ndarray, v: cupy.ndarray, c: cupy.ndarray) -> None:
    count, n, rows = len(c), y.shape[-1], y.size // y.shape[-1]
    kernel = columns.lane_polynomial(n, y.dtype, rows, count)
    run(kernel, y, v, cupy.ascontiguousarray(c, np.complex128), np.int64(rows), np.int32(count))

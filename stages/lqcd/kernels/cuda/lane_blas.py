"""Sums and updates over a basis of fields, each right-hand side with coefficients of its own.

Up to 64 right-hand sides. Results stay on the device.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.operands import check_lanes


def lane_dots(xs: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """conj(xs[k]) . y of each right-hand side, complex128 ``[K, N]``; sums in double."""
    check_lanes(xs, y)
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    kernel = columns.lane_dots(n, y.dtype, rows, count)
    sums = cupy.empty((count, n), np.complex128)
    run(kernel, xs, y, sums, *grid_sums(kernel, 2 * columns.LANE_FIELDS * n), np.int64(rows), np.int32(count))
    return sums


def lane_update(
    y: cupy.ndarray, xs: cupy.ndarray, a: cupy.ndarray, scale: cupy.ndarray | None = None
) -> None:
    """y = scale y + sum_k a[k] xs[k] in place, with complex a ``[K, N]`` and scale ``[N]``, one by default.

    Coefficients are rounded to the precision of the fields.
    """
    check_lanes(xs, y, a, scale)
    count, n, rows = len(xs), y.shape[-1], y.size // y.shape[-1]
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    kernel = columns.lane_update(n, y.dtype, rows, count)
    factor = np.uintp(0) if scale is None else cupy.ascontiguousarray(scale, np.complex128)
    run(kernel, y, xs, coefficients, factor, np.int64(rows), np.int32(count))


def lane_polynomial(y: cupy.ndarray, v: cupy.ndarray, c: cupy.ndarray) -> None:
    """y += sum_k c[k] v[k] and v[0] -= sum_k c[k] v[k + 1] in place: K + 1 fields v, complex c ``[K, N]``.

    With powers v[k] = A^k v[0] that is a step of a polynomial method: v[0] stays the residual of y. Every
    field is read once. Coefficients are rounded to the precision of the fields.
    """
    check_lanes(v, y)
    check_lanes(v[:-1], y, c)
    count, n, rows = len(c), y.shape[-1], y.size // y.shape[-1]
    kernel = columns.lane_polynomial(n, y.dtype, rows, count)
    run(kernel, y, v, cupy.ascontiguousarray(c, np.complex128), np.int64(rows), np.int32(count))

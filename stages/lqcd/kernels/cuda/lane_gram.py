"""Gram matrices of a few fields and least squares among them, each right-hand side by itself.

Up to 64 right-hand sides. Results stay on the device.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.operands import check_few_fields, check_gram
from stages.lqcd.kernels.reference.lane_gram import MOST_FIELDS, NOISE


def lane_gram(xs: cupy.ndarray) -> cupy.ndarray:
    """G[j, k] = conj(xs[j]) . xs[k] of each right-hand side, complex128 ``[K, K, N]``; sums in double."""
    check_few_fields(xs, MOST_FIELDS)
    count, n, rows = len(xs), xs.shape[-1], xs.size // (len(xs) * xs.shape[-1])
    kernel = columns.lane_gram(n, xs.dtype, rows, count)
    gram = cupy.empty((count, count, n), np.complex128)
    run(kernel, xs, gram, *grid_sums(kernel, count * (count + 1) * n), np.int64(rows))
    return gram


def lane_least_squares(gram: cupy.ndarray) -> cupy.ndarray:
    """c ``[K - 1, N]``, complex128, with the shortest xs[0] - sum_k c[k] xs[k + 1], from their `lane_gram`.

    By Cholesky's factors of the fields scaled to norm one; c is zero for fields that vanish or depend on
    those before them (`NOISE` of the reference).
    """
    check_gram(gram)
    count, n = len(gram), gram.shape[2]
    c = cupy.empty((count - 1, n), np.complex128)
    run(columns.lane_least_squares(n, count), gram, c, np.float64(NOISE), np.int32(n))
    return c

"""Products of all pairs in registers; results stay on the device."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.lane_gram import NOISE


def lane_gram(xs: cupy.ndarray) -> cupy.ndarray:
    count, n, rows = len(xs), xs.shape[-1], xs.size // (len(xs) * xs.shape[-1])
    kernel = columns.lane_gram(n, xs.dtype, rows, count)
    gram = cupy.empty((count, count, n), np.complex128)
    run(kernel, xs, gram, *grid_sums(kernel, count * (count + 1) * n), np.int64(rows))
    return gram


def lane_least_squares(gram: cupy.ndarray) -> cupy.ndarray:
    count, n = len(gram), gram.shape[2]
    c = cupy.empty((count - 1, n), np.complex128)
    run(columns.lane_least_squares(n, count), gram, c, np.float64(NOISE), np.int32(n))
    return c

"""Updates of CG on a GPU, one pass over the fields each; numbers stay on the device."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns


def cg_advance(x: cupy.ndarray, p: cupy.ndarray, r: cupy.ndarray, coefficients: CGCoefficients) -> None:
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = columns.cg_advance(n, r.dtype, rows)
    run(kernel, x, p, r, coefficients.numbers, np.int64(rows))


def cg_residual(r: cupy.ndarray, ap: cupy.ndarray, coefficients: CGCoefficients) -> None:
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = columns.reduction("cg_residual", n, r.dtype, rows)
    run(kernel, r, ap, coefficients.numbers, *grid_sums(kernel, n), np.int64(rows))

"""Vector updates of batched conjugate gradients: fields ``[site, 3, N]``, numbers ``[N]`` on the device."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cg_coefficients import CGCoefficients
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.operands import check_cg


def cg_advance(x: cupy.ndarray, p: cupy.ndarray, r: cupy.ndarray, coefficients: CGCoefficients) -> None:
    """x += alpha p, then p = r + beta p, in place; a column with r2 <= target2 keeps p.

    Where alpha is zero x keeps its bits, and where beta is zero p becomes r, whatever p held.
    """
    check_cg(coefficients, x=x, p=p, r=r)
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = columns.cg_advance(n, r.dtype, rows)
    run(kernel, x, p, r, coefficients.numbers, np.int64(rows))


def cg_residual(r: cupy.ndarray, ap: cupy.ndarray, coefficients: CGCoefficients) -> None:
    """alpha = gamma / pap, r -= alpha ap in place, beta = |r|^2 / r2, then gamma = r2 = |r|^2.

    alpha and beta are zero, and r keeps its bits whatever ap holds, where r2 <= target2 or pap is not
    positive.
    """
    check_cg(coefficients, r=r, ap=ap)
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = columns.reduction("cg_residual", n, r.dtype, rows)
    run(kernel, r, ap, coefficients.numbers, *grid_sums(kernel, n), np.int64(rows))

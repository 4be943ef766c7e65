"""Vector updates of batched conjugate gradients, one coefficient per right-hand side: ``[site, 3, N]``."""

from __future__ import annotations

import cupy
import numpy as np

from stages.kernels.cuda import launch
from stages.kernels.cuda.block_blas import sum_partials
from stages.kernels.cuda.compile import run
from stages.kernels.operands import check_array


def cg_step(
    x: cupy.ndarray, r: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, alpha: cupy.ndarray
) -> cupy.ndarray:
    """x += alpha p, r -= alpha ap in place; returns the new |r|^2, float64 ``[N]``.

    alpha is float64 ``[N]``. Where it is zero, x and r keep their bits whatever p and ap hold.
    """
    for name, array in (("r", r), ("p", p), ("ap", ap)):
        check_array(name, array, x.shape, x.dtype)
    n, rows = x.shape[-1], x.size // x.shape[-1]
    kernel = launch.rows_kernel("cg_update.cu", "cg_step", n, x.dtype, rows)
    partials = cupy.empty((kernel.grid[0], n))
    run(kernel, x, r, p, ap, _coefficients("alpha", alpha, n), partials, np.int64(rows))
    return sum_partials(partials)


def cg_direction(p: cupy.ndarray, r: cupy.ndarray, beta: cupy.ndarray) -> None:
    """p = r + beta p in place, beta float64 ``[N]``; where beta is zero p becomes r whatever p held."""
    check_array("r", r, p.shape, p.dtype)
    n, rows = p.shape[-1], p.size // p.shape[-1]
    kernel = launch.rows_kernel("cg_update.cu", "cg_direction", n, p.dtype, rows)
    run(kernel, p, r, _coefficients("beta", beta, n), np.int64(rows))


def _coefficients(name: str, values: cupy.ndarray, n: int) -> cupy.ndarray:
    coefficients = cupy.asarray(values, np.float64)
    check_array(name, coefficients, (n,), np.dtype(np.float64))
    return coefficients

"""Vector updates of batched conjugate gradients, one coefficient per right-hand side: ``[site, 3, N]``."""

from __future__ import annotations

import cupy
import numpy as np

from stages.kernels.cuda.block_blas import sum_partials
from stages.kernels.cuda.compile import run
from stages.kernels.cuda.launch import columns
from stages.kernels.operands import check_array, check_blocks, check_per_rhs


def cg_step(
    x: cupy.ndarray, r: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, alpha: cupy.ndarray
) -> cupy.ndarray:
    """x += alpha p, r -= alpha ap in place; returns the new |r|^2, float64 ``[N]``.

    alpha is float64 ``[N]``. Where it is zero, x and r keep their bits whatever p and ap hold.
    """
    check_blocks(x=x)
    for name, array in (("r", r), ("p", p), ("ap", ap)):
        check_array(name, array, x.shape, x.dtype)
    n, rows = x.shape[-1], x.size // x.shape[-1]
    kernel = columns.rows_kernel("cg_update.cu", "cg_step", n, x.dtype, rows)
    partials = cupy.empty((kernel.grid[0], n))
    run(kernel, x, r, p, ap, _coefficients("alpha", alpha, x), partials, np.int64(rows))
    return sum_partials(partials)


def cg_direction(p: cupy.ndarray, r: cupy.ndarray, beta: cupy.ndarray) -> None:
    """p = r + beta p in place, beta float64 ``[N]``; where beta is zero p becomes r whatever p held."""
    check_blocks(p=p)
    check_array("r", r, p.shape, p.dtype)
    n, rows = p.shape[-1], p.size // p.shape[-1]
    kernel = columns.rows_kernel("cg_update.cu", "cg_direction", n, p.dtype, rows)
    run(kernel, p, r, _coefficients("beta", beta, p), np.int64(rows))


def _coefficients(name: str, values: cupy.ndarray, field: cupy.ndarray) -> cupy.ndarray:
    check_per_rhs(name, values, field)
    return cupy.ascontiguousarray(values, np.float64)

"""Vector updates of batched conjugate gradients, one coefficient per right-hand side: ``[site, 3, N]``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.kernels.cpu.compiled import array_type, compiled
from stages.kernels.cpu.lane_dots import add_lane_dots
from stages.kernels.cpu.rows import BLOCK_ROWS, block_count, real_rows
from stages.kernels.operands import check_array, check_blocks, check_per_rhs

STEP_ROWS = 64
"""Rows of r that are still in the first cache when their norm is taken."""


def cg_step(x: NDArray, r: NDArray, p: NDArray, ap: NDArray, alpha: NDArray) -> NDArray[np.float64]:
    """x += alpha p, r -= alpha ap in place; returns the new |r|^2, float64 ``[N]``.

    alpha is float64 ``[N]``. Where it is zero, x and r keep their bits whatever p and ap hold.
    """
    check_blocks(x=x)
    check_per_rhs("alpha", alpha, x)
    for name, array in (("r", r), ("p", p), ("ap", ap)):
        check_array(name, array, x.shape, x.dtype)
    rows = [real_rows(array) for array in (x, r, p, ap)]
    sums = np.empty((block_count(len(rows[0])), x.shape[-1]), np.complex128)
    _step_kernel(x.shape[-1], x.itemsize // 2)(*rows, _by_lane(alpha, x), sums)
    return sums.sum(axis=0).real.copy()


def cg_direction(p: NDArray, r: NDArray, beta: NDArray) -> None:
    """p = r + beta p in place, beta float64 ``[N]``; where beta is zero p becomes r whatever p held."""
    check_blocks(p=p)
    check_per_rhs("beta", beta, p)
    check_array("r", r, p.shape, p.dtype)
    _direction_kernel(p.shape[-1], p.itemsize // 2)(real_rows(p), real_rows(r), _by_lane(beta, p))


def _by_lane(coefficients: NDArray, field: NDArray) -> NDArray:
    """A coefficient for each real of a row, in the field's precision."""
    return np.repeat(coefficients.astype(field.real.dtype), 2)


@cache
def _step_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, row_bytes, real = 2 * rhs, 2 * rhs * itemsize, f"f{itemsize}"

    def step(x: NDArray, r: NDArray, p: NDArray, ap: NDArray, alpha: NDArray, sums: NDArray) -> None:
        residual, result, rows = r.ctypes.data, sums.ctypes.data, len(x)
        for block in prange(len(sums)):
            for n in range(rhs):
                sums[block, n] = 0
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, STEP_ROWS):
                last = min(end, first + STEP_ROWS)
                for row in range(first, last):
                    for lane in range(lanes):
                        a = alpha[lane]
                        x[row, lane] = x[row, lane] + a * p[row, lane] if a != 0 else x[row, lane]
                        r[row, lane] = r[row, lane] - a * ap[row, lane] if a != 0 else r[row, lane]
                start = residual + first * row_bytes
                add_lane_dots(start, start, last - first, result + block * 16 * rhs, itemsize, rhs)

    read, write = array_type(real, 2), array_type(real, 2, writable=True)
    sums_type = array_type("c16", 2, writable=True)
    signature = types.void(write, write, read, read, array_type(real, 1), sums_type)
    return compiled(step, f"cg_step_{rhs}_{8 * itemsize}", signature)


@cache
def _direction_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, real = 2 * rhs, f"f{itemsize}"

    def direction(p: NDArray, r: NDArray, beta: NDArray) -> None:
        for row in prange(len(p)):
            for lane in range(lanes):
                b = beta[lane]
                p[row, lane] = r[row, lane] + b * p[row, lane] if b != 0 else r[row, lane]

    signature = types.void(array_type(real, 2, writable=True), array_type(real, 2), array_type(real, 1))
    return compiled(direction, f"cg_direction_{rhs}_{8 * itemsize}", signature)

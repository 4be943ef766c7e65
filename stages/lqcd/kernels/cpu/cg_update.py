"""Vector updates of batched conjugate gradients: fields ``[site, 3, N]``, one of each number for each rhs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import CGCoefficients, quotient
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import add_lane_dots
from stages.lqcd.kernels.cpu.rows import BLOCK_ROWS, block_count, real_rows

STEP_ROWS = 64
"""Rows of r that are still in the first cache when their norm is taken."""


def cg_advance(x: NDArray, p: NDArray, r: NDArray, coefficients: CGCoefficients) -> None:
    c = coefficients
    numbers = (_by_lane(values, r) for values in (c.alpha, c.beta, c.r2 > c.target2))
    _advance_kernel(r.shape[-1], r.itemsize // 2)(real_rows(x), real_rows(p), real_rows(r), *numbers)


def cg_residual(r: NDArray, ap: NDArray, coefficients: CGCoefficients) -> None:
    c, rows = coefficients, real_rows(r)
    moves = (c.r2 > c.target2) & (c.pap > 0)
    c.alpha[...] = quotient(c.gamma, c.pap, moves)
    sums = np.empty((block_count(len(rows)), r.shape[-1]), np.complex128)
    _residual_kernel(r.shape[-1], r.itemsize // 2)(rows, real_rows(ap), _by_lane(c.alpha, r), sums)
    r2 = sums.sum(axis=0).real
    c.beta[...] = quotient(r2, c.r2, moves)
    c.r2[...] = c.gamma[...] = r2


def _by_lane(numbers: NDArray, field: NDArray) -> NDArray:
    """A number for each real of a row, in the field's precision."""
    return np.repeat(numbers.astype(field.real.dtype), 2)


@cache
def _advance_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, real = 2 * rhs, f"f{itemsize}"

    def advance(
        low: int,
        high: int,
        x: NDArray,
        p: NDArray,
        r: NDArray,
        alpha: NDArray,
        beta: NDArray,
        is_open: NDArray,
    ) -> None:
        for row in prange(low, high):
            for lane in range(lanes):
                a, b, direction, residual = alpha[lane], beta[lane], p[row, lane], r[row, lane]
                x[row, lane] = x[row, lane] + a * direction if a != 0 else x[row, lane]
                advanced = residual + b * direction if b != 0 else residual
                p[row, lane] = advanced if is_open[lane] != 0 else direction

    read, write = array_type(real, 2), array_type(real, 2, writable=True)
    signature = types.void(write, write, read, *[array_type(real, 1)] * 3)
    return compiled(advance, f"cg_advance_{rhs}_{8 * itemsize}", signature, lambda x, *others: len(x))


@cache
def _residual_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, row_bytes, real = 2 * rhs, 2 * rhs * itemsize, f"f{itemsize}"

    def residual(low: int, high: int, r: NDArray, ap: NDArray, alpha: NDArray, sums: NDArray) -> None:
        start, result, rows = r.ctypes.data, sums.ctypes.data, len(r)
        for block in prange(low, high):
            for n in range(rhs):
                sums[block, n] = 0
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, STEP_ROWS):
                last = min(end, first + STEP_ROWS)
                for row in range(first, last):
                    for lane in range(lanes):
                        a = alpha[lane]
                        r[row, lane] = r[row, lane] - a * ap[row, lane] if a != 0 else r[row, lane]
                updated = start + first * row_bytes
                add_lane_dots(updated, updated, last - first, result + block * 16 * rhs, itemsize, rhs)

    read, write = array_type(real, 2), array_type(real, 2, writable=True)
    signature = types.void(write, read, array_type(real, 1), array_type("c16", 2, writable=True))
    return compiled(
        residual, f"cg_residual_{rhs}_{8 * itemsize}", signature, lambda *arguments: len(arguments[-1])
    )

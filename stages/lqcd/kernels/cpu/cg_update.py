"""Vector updates of batched conjugate gradients: fields ``[site, 3, N]``, one of each number for each rhs.

Between two passes over fields a few numbers are worked on: compiled too, because on a small lattice NumPy's
calls would take as long as a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import ROWS, CGCoefficients
from stages.lqcd.kernels.cpu.compiled import array_type, compiled, compiled_serial
from stages.lqcd.kernels.cpu.lane_dots import add_lane_dots
from stages.lqcd.kernels.cpu.rows import block_count, block_rows_of, fold_of, folded, real_rows
from stages.lqcd.kernels.cpu.short_numbers import put_columns
from stages.lqcd.kernels.short_numbers import Numbers, whole

STEP_ROWS = 64
"""Rows of r that are still in the first cache when their norm is taken."""

R2, PAP, TARGET2, GAMMA, ALPHA, BETA = range(len(ROWS))


def cg_advance(x: NDArray, p: Numbers, r: Numbers, coefficients: CGCoefficients) -> None:
    if not (isinstance(r, np.ndarray) and isinstance(p, np.ndarray)):
        direction = whole(p)
        cg_advance(x, direction, whole(r), coefficients)
        if not isinstance(p, np.ndarray):
            put_columns(p, direction, coefficients.r2 > coefficients.target2)
        return
    fold, itemsize = fold_of(r), r.itemsize // 2
    columns = fold * r.shape[-1]
    lanes = np.empty((3, 2 * columns), f"f{itemsize}")
    _advance_numbers(itemsize)(coefficients.numbers, r.shape[-1], lanes)
    rows = (real_rows(folded(field, fold)) for field in (x, p, r))
    _advance_kernel(columns, itemsize)(*rows, lanes)


def cg_residual(r: Numbers, ap: Numbers, coefficients: CGCoefficients) -> None:
    if not (isinstance(r, np.ndarray) and isinstance(ap, np.ndarray)):
        residual = whole(r)
        cg_residual(residual, whole(ap), coefficients)
        if not isinstance(r, np.ndarray):
            put_columns(r, residual, coefficients.alpha != 0)
        return
    fold, itemsize, rhs = fold_of(r), r.itemsize // 2, r.shape[-1]
    rows, columns = real_rows(folded(r, fold)), fold * rhs
    block_rows = block_rows_of(len(rows), fold)
    alpha = np.empty(2 * columns, f"f{itemsize}")
    _step_numbers(itemsize)(coefficients.numbers, rhs, alpha)
    sums = np.empty((block_count(len(rows), block_rows), columns), np.complex128)
    _residual_kernel(columns, itemsize)(rows, real_rows(folded(ap, fold)), alpha, block_rows, sums)
    _norm_numbers()(coefficients.numbers, rhs, sums)


@cache
def _advance_numbers(itemsize: int) -> Callable[..., None]:
    """Coefficients alpha and beta, and whether the column is open, for each real of a row."""

    def numbers_by_lane(numbers: NDArray, rhs: int, lanes: NDArray) -> None:
        for lane in range(lanes.shape[1]):
            n = lane // 2 % rhs
            lanes[0, lane] = numbers[ALPHA, n]
            lanes[1, lane] = numbers[BETA, n]
            lanes[2, lane] = numbers[R2, n] > numbers[TARGET2, n]

    signature = types.void(array_type("f8", 2), types.int64, array_type(f"f{itemsize}", 2, writable=True))
    return compiled_serial(numbers_by_lane, f"cg_advance_numbers_{8 * itemsize}", signature)


@cache
def _step_numbers(itemsize: int) -> Callable[..., None]:
    """Coefficient alpha = gamma / pap of columns that move, zero of others; also for each real of a row."""

    def step(numbers: NDArray, rhs: int, lanes: NDArray) -> None:
        for n in range(rhs):
            moves = numbers[R2, n] > numbers[TARGET2, n] and numbers[PAP, n] > 0
            numbers[ALPHA, n] = numbers[GAMMA, n] / numbers[PAP, n] if moves else 0.0
        for lane in range(len(lanes)):
            lanes[lane] = numbers[ALPHA, lane // 2 % rhs]

    numbers, lanes = (array_type(*kind, writable=True) for kind in (("f8", 2), (f"f{itemsize}", 1)))
    signature = types.void(numbers, types.int64, lanes)
    return compiled_serial(step, f"cg_step_numbers_{8 * itemsize}", signature)


@cache
def _norm_numbers() -> Callable[..., None]:
    """|r|^2 of all blocks, and beta."""

    def norm(numbers: NDArray, rhs: int, sums: NDArray) -> None:
        for n in range(rhs):
            r2 = 0.0
            for block in range(len(sums)):
                for column in range(n, sums.shape[1], rhs):
                    r2 += sums[block, column].real
            moves = numbers[R2, n] > numbers[TARGET2, n] and numbers[PAP, n] > 0
            numbers[BETA, n] = r2 / numbers[R2, n] if moves else 0.0
            numbers[R2, n] = numbers[GAMMA, n] = r2

    signature = types.void(array_type("f8", 2, writable=True), types.int64, array_type("c16", 2))
    return compiled_serial(norm, "cg_norm_numbers", signature)


@cache
def _advance_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, real = 2 * rhs, f"f{itemsize}"

    def advance(low: int, high: int, x: NDArray, p: NDArray, r: NDArray, numbers: NDArray) -> None:
        for row in prange(low, high):
            for lane in range(lanes):
                a, b, direction, residual = numbers[0, lane], numbers[1, lane], p[row, lane], r[row, lane]
                x[row, lane] = x[row, lane] + a * direction if a != 0 else x[row, lane]
                advanced = residual + b * direction if b != 0 else residual
                p[row, lane] = advanced if numbers[2, lane] != 0 else direction

    read, write = array_type(real, 2), array_type(real, 2, writable=True)
    signature = types.void(write, write, read, read)
    return compiled(advance, f"cg_advance_{rhs}_{8 * itemsize}", signature, lambda x, *others: len(x))


@cache
def _residual_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    lanes, row_bytes, real = 2 * rhs, 2 * rhs * itemsize, f"f{itemsize}"

    def residual(
        low: int, high: int, r: NDArray, ap: NDArray, alpha: NDArray, block_rows: int, sums: NDArray
    ) -> None:
        start, result, rows = r.ctypes.data, sums.ctypes.data, len(r)
        for block in prange(low, high):
            for n in range(rhs):
                sums[block, n] = 0
            end = min(rows, (block + 1) * block_rows)
            for first in range(block * block_rows, end, STEP_ROWS):
                last = min(end, first + STEP_ROWS)
                for row in range(first, last):
                    for lane in range(lanes):
                        a = alpha[lane]
                        r[row, lane] = r[row, lane] - a * ap[row, lane] if a != 0 else r[row, lane]
                updated = start + first * row_bytes
                add_lane_dots(updated, updated, last - first, result + block * 16 * rhs, itemsize, rhs)

    read, write = array_type(real, 2), array_type(real, 2, writable=True)
    signature = types.void(write, read, array_type(real, 1), types.int64, array_type("c16", 2, writable=True))
    return compiled(
        residual, f"cg_residual_{rhs}_{8 * itemsize}", signature, lambda *arguments: len(arguments[-1])
    )

"""Passes of block CG, in runs of rows that stay in the first caches for all their products."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.block_cg import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cholesky import Matrix, cholesky
from stages.lqcd.kernels.cpu.block_blas import GRAM_ROWS, PRODUCT_ROWS
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.matrix_product import matrix_product
from stages.lqcd.kernels.cpu.rows import BLOCK_ROWS, block_count, real_rows


def repeatable(width: int, dtype: np.dtype) -> bool:
    return True


def iteration_grams(p: NDArray, ap: NDArray, q: NDArray, a: BlockCoefficients) -> None:
    rows, n = real_rows(p), p.shape[-1]
    partial = a.workspace("partial sums", (block_count(len(rows)), 3, n, 2 * n), np.float64)
    zeros = np.zeros(2 * n, rows.dtype)
    _grams_kernel(n, rows.itemsize)(rows, real_rows(ap), real_rows(q), zeros, partial)
    sums = partial.sum(axis=0).view(np.complex128)
    upper = np.triu(sums, 1)
    a.grams[...] = upper + upper.conj().swapaxes(-1, -2) + np.eye(n) * sums.real


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    padding = np.diag(np.arange(len(a.c)) >= rank)  # makes columns of zeros stay what they are
    pap, ap2, q2 = a.grams + np.array([1, 2, 1])[:, None, None] * padding
    a.summary[0] = 0
    if not abs(q2 - np.eye(len(q2))).max() < DRIFT:
        return
    _, root, condition = cholesky(pap)
    if not condition * unit < CONDITION:
        return
    alpha = root @ (root.conj().T @ q2)
    advance = alpha.conj().T @ ap2 @ alpha
    S, T, condition = cholesky(advance - q2)
    if not (np.isfinite(condition) and _amplification(advance, T) * unit < DRIFT):
        return
    a.x[...], a.q[...], a.ap[...] = alpha @ a.c, T, -alpha @ T
    a.p[...] = 2 * S.conj().T - q2 @ S.conj().T  # M^-1 S^H, M being near one
    a.c[...] = S @ a.c
    a.remains[...] *= S.diagonal().real
    sizes2 = a.c.real**2 + a.c.imag**2
    a.summary[0], a.summary[1] = 1, a.remains[(sizes2 > a.target**2).any(axis=1)].min(initial=1)
    a.summary[2:] = np.sqrt(sizes2.sum(axis=0))


def _amplification(advance: Matrix, T: Matrix) -> float:
    """Distance of Q^H Q from one if the Gram matrices it was predicted from are off by one."""
    return float(advance.diagonal().real.mean() * np.vdot(T, T).real)


def block_step(x: NDArray, q: NDArray, p: NDArray, ap: NDArray, a: BlockCoefficients) -> None:
    if a.summary[0]:
        for_x = real_rows(np.ascontiguousarray(a.x, x.dtype))
        matrices = (real_rows(np.ascontiguousarray(m, p.dtype)) for m in (a.q, a.ap, a.p))
        kernel = _step_kernel(p.shape[-1], x.shape[-1], p.itemsize // 2, x.itemsize // 2)
        fields = (real_rows(field) for field in (x, q, p, ap))
        kernel(*fields, for_x, *matrices, np.zeros(2 * p.shape[-1]))


@cache
def _grams_kernel(n: int, itemsize: int) -> Callable[..., None]:
    """partial[block, m] = upper triangle of the m-th matrix over each block of rows; the rest is anything.

    Of the four quarters of a matrix the lower left one is left out. `zeros`: see `block_blas._gram_kernel`.
    """
    element, half, remainder = 2 * itemsize, n // 2, n - n // 2
    row_bytes, corner = n * element, half * (n + 1) * element

    def grams(
        low: int, high: int, p: NDArray, ap: NDArray, q: NDArray, zeros: NDArray, partial: NDArray
    ) -> None:
        rows, added = len(p), zeros.ctypes.data
        p_start, ap_start, q_start = p.ctypes.data, ap.ctypes.data, q.ctypes.data
        for block in prange(low, high):
            sums = np.empty((n, 2 * n), p.dtype)
            result = sums.ctypes.data
            for m in range(3):
                for i in range(n):
                    for lane in range(2 * n):
                        partial[block, m, i, lane] = 0
            for i in range(n):
                for lane in range(2 * n):
                    sums[i, lane] = 0
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, GRAM_ROWS):
                terms, shift = min(GRAM_ROWS, end - first), first * row_bytes
                for m in range(3):
                    x = (p_start if m == 0 else ap_start if m == 1 else q_start) + shift
                    y = (q_start if m == 2 else ap_start) + shift
                    if half:
                        matrix_product(
                            x, y, added, 0, result, terms,
                            itemsize, half, n, element, row_bytes, row_bytes, 1,
                        )  # fmt: skip
                    matrix_product(
                        x + half * element, y + half * element, added, 0, result + corner, terms,
                        itemsize, remainder, remainder, element, row_bytes, row_bytes, 1,
                    )  # fmt: skip
                    for i in range(n):
                        for lane in range(2 * n):
                            partial[block, m, i, lane] += sums[i, lane]

    real = f"f{itemsize}"
    block_type, result_type = array_type(real, 2), array_type("f8", 4, writable=True)
    signature = types.void(block_type, block_type, block_type, array_type(real, 1), result_type)
    return compiled(
        grams, f"iteration_grams_{n}_{8 * itemsize}", signature, lambda *arguments: len(arguments[-1])
    )


@cache
def _step_kernel(n: int, rhs: int, itemsize: int, x_itemsize: int) -> Callable[..., None]:
    """The sweep, PRODUCT_ROWS rows at a time; rows beyond the end are in the copies alone.

    itemsize: of the reals of the blocks; x_itemsize: of those of X, whose product is computed in them.

    Copies are loops: assignments of slices take Numba five seconds to compile.
    """
    element = 2 * itemsize
    row_bytes, x_bytes, x_element = n * element, rhs * 2 * x_itemsize, 2 * x_itemsize
    p_bytes = n * x_element

    def step(
        low: int, high: int, 
        x: NDArray, q: NDArray, p: NDArray, ap: NDArray,
        a_x: NDArray, a_q: NDArray, a_ap: NDArray, a_p: NDArray, zeros: NDArray,
    ) -> None:  # fmt: skip
        rows, added = len(p), zeros.ctypes.data
        for_x, for_q, for_ap, for_p = a_x.ctypes.data, a_q.ctypes.data, a_ap.ctypes.data, a_p.ctypes.data
        for block in prange(low, high):
            fields = np.zeros((3, PRODUCT_ROWS, 2 * n), p.dtype)
            directions = np.zeros((PRODUCT_ROWS, 2 * n), x.dtype)
            solution = np.zeros((PRODUCT_ROWS, 2 * rhs), x.dtype)
            new = np.empty((PRODUCT_ROWS, 2 * n), p.dtype)
            old_q, old_p, old_ap = fields[0].ctypes.data, fields[1].ctypes.data, fields[2].ctypes.data
            new_x, new_q, p_of_x = solution.ctypes.data, new.ctypes.data, directions.ctypes.data
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, PRODUCT_ROWS):
                count = min(PRODUCT_ROWS, end - first)
                for row in range(count):
                    for lane in range(2 * n):
                        fields[0, row, lane] = q[first + row, lane]
                        fields[1, row, lane] = p[first + row, lane]
                        directions[row, lane] = p[first + row, lane]
                        fields[2, row, lane] = ap[first + row, lane]
                    for lane in range(2 * rhs):
                        solution[row, lane] = x[first + row, lane]
                matrix_product(
                    p_of_x, for_x, new_x, x_bytes, new_x, n,
                    x_itemsize, PRODUCT_ROWS, rhs, p_bytes, x_element, x_bytes, 0,
                )  # fmt: skip
                matrix_product(
                    old_q, for_q, added, 0, new_q, n,
                    itemsize, PRODUCT_ROWS, n, row_bytes, element, row_bytes, 0,
                )  # fmt: skip
                matrix_product(
                    old_ap, for_ap, new_q, row_bytes, new_q, n,
                    itemsize, PRODUCT_ROWS, n, row_bytes, element, row_bytes, 0,
                )  # fmt: skip
                matrix_product(
                    old_p, for_p, new_q, row_bytes, old_q, n,
                    itemsize, PRODUCT_ROWS, n, row_bytes, element, row_bytes, 0,
                )  # fmt: skip
                for row in range(count):
                    for lane in range(2 * rhs):
                        x[first + row, lane] = solution[row, lane]
                    for lane in range(2 * n):
                        q[first + row, lane] = new[row, lane]
                        p[first + row, lane] = fields[0, row, lane]

    real = f"f{itemsize}"
    read, written = array_type(real, 2), array_type(real, 2, writable=True)
    real_x = f"f{x_itemsize}"
    of_x = array_type(real_x, 2, writable=True), array_type(real_x, 2)
    signature = types.void(of_x[0], written, written, read, of_x[1], read, read, read, array_type("f8", 1))
    name = f"block_step_{n}_{rhs}_{8 * itemsize}_{8 * x_itemsize}"
    return compiled(step, name, signature, lambda x, *others: ceil(len(x) / BLOCK_ROWS))

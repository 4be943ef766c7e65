"""Passes of block CG, in runs of rows that stay in the first caches for all their products."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.block_cg import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cpu.block_blas import GRAM_ROWS
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.matrix_product import matrix_product
from stages.lqcd.kernels.cpu.rows import BLOCK_ROWS, block_count, real_rows
from stages.lqcd.kernels.host_lapack import Matrix, cholesky

SUMS = 32
"""Partial sums of a small lattice, about: every thread then has as many as any other."""

STEP_ROWS = 24
"""Rows of a sweep done together: they stay in the first cache, and are a multiple of every tile's height."""


def repeatable(width: int, dtype: np.dtype) -> bool:
    return True


def iteration_grams(p: NDArray, ap: NDArray, q: NDArray, a: BlockCoefficients) -> None:
    rows, n = real_rows(p), p.shape[-1]
    together = _rows_of_a_sum(len(rows))
    partial = a.workspace("partial sums", (block_count(len(rows), together), 3, n, 2 * n), np.float64)
    zeros = np.zeros(2 * n, rows.dtype)
    _grams_kernel(n, rows.itemsize)(rows, real_rows(ap), real_rows(q), zeros, together, partial)
    sums = partial.sum(axis=0).view(np.complex128)
    a.grams[...] = sums
    np.copyto(a.grams, sums.conj().swapaxes(-1, -2), where=_below(n))
    np.einsum("mii->mi", a.grams.imag)[...] = 0


def _rows_of_a_sum(rows: int) -> int:
    """Rows of one partial sum: fewer where there are few, so that all threads have some."""
    return min(BLOCK_ROWS, ceil(rows / (SUMS * GRAM_ROWS)) * GRAM_ROWS)


@cache
def _below(n: int) -> NDArray[np.bool_]:
    """True below the diagonal of a matrix."""
    return np.tri(n, k=-1, dtype=bool)


@cache
def _one(n: int) -> Matrix:
    return np.eye(n, dtype=np.complex128)


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    one = _one(len(a.c))
    pap, ap2, q2 = a.grams
    if rank < len(one):
        padding = one * (np.arange(len(one)) >= rank)  # makes columns of zeros stay what they are
        pap, ap2, q2 = pap + padding, ap2 + 2 * padding, q2 + padding
    a.summary[0] = 0
    if not abs(q2 - one).max() < DRIFT:
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
        pair = np.concatenate((a.q, a.ap), dtype=p.dtype, casting="same_kind")
        matrices = real_rows(pair), real_rows(np.ascontiguousarray(a.p, p.dtype))
        kernel = _step_kernel(p.shape[-1], x.shape[-1], p.itemsize // 2, x.itemsize // 2)
        fields = (real_rows(field) for field in (x, q, p, ap))
        kernel(*fields, for_x, *matrices, np.zeros(2 * p.shape[-1]))


@cache
def _grams_kernel(n: int, itemsize: int) -> Callable[..., None]:
    """partial[block, m] = upper triangle of the m-th matrix over each `together` rows; the rest is anything.

    Of the four quarters of a matrix the lower left one is left out. `zeros`: see `block_blas._gram_kernel`.
    """
    element, half, remainder = 2 * itemsize, n // 2, n - n // 2
    row_bytes, corner = n * element, half * (n + 1) * element

    def grams(
        low: int, high: int,
        p: NDArray, ap: NDArray, q: NDArray, zeros: NDArray, together: int, partial: NDArray,
    ) -> None:  # fmt: skip
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
            end = min(rows, (block + 1) * together)
            for first in range(block * together, end, GRAM_ROWS):
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
    signature = types.void(*3 * (block_type,), array_type(real, 1), types.intp, result_type)
    return compiled(
        grams, f"iteration_grams_{n}_{8 * itemsize}", signature, lambda *arguments: len(arguments[-1])
    )


@cache
def _step_kernel(n: int, rhs: int, itemsize: int, x_itemsize: int) -> Callable[..., None]:
    """The sweep in place, STEP_ROWS rows at a time; what fewer at the end become is written to copies first.

    Q and A P are copied side by side, so that one product gives the new Q. itemsize: of the reals of the
    blocks; x_itemsize: of those of X, whose product is computed in them.

    Copies are loops: assignments of slices take Numba five seconds to compile.
    """
    mixed, element, x_element = x_itemsize != itemsize, 2 * itemsize, 2 * x_itemsize
    row_bytes, x_bytes, p_bytes, pair_bytes = n * element, rhs * x_element, n * x_element, 2 * n * element

    def step(
        low: int, high: int,
        x: NDArray, q: NDArray, p: NDArray, ap: NDArray,
        for_x: NDArray, for_q: NDArray, for_p: NDArray, zeros: NDArray,
    ) -> None:  # fmt: skip
        pairs, old_p = np.zeros((STEP_ROWS, 4 * n), p.dtype), np.zeros((STEP_ROWS, 2 * n), p.dtype)
        wide_p, last_x = np.zeros((STEP_ROWS, 2 * n), x.dtype), np.zeros((STEP_ROWS, 2 * rhs), x.dtype)
        last_q, last_p = np.zeros((STEP_ROWS, 2 * n), p.dtype), np.zeros((STEP_ROWS, 2 * n), p.dtype)
        p_of_x = wide_p.ctypes.data if mixed else old_p.ctypes.data
        for first in range(low * STEP_ROWS, min(len(p), high * STEP_ROWS), STEP_ROWS):
            count = min(STEP_ROWS, len(p) - first)
            for row in range(count):
                for lane in range(2 * n):
                    pairs[row, lane] = q[first + row, lane]
                    pairs[row, 2 * n + lane] = ap[first + row, lane]
                    old_p[row, lane] = p[first + row, lane]
                    if mixed:
                        wide_p[row, lane] = p[first + row, lane]
            new_x = np.intp(x.ctypes.data + first * x_bytes)
            new_q = np.intp(q.ctypes.data + first * row_bytes)
            new_p = np.intp(p.ctypes.data + first * row_bytes)
            if count < STEP_ROWS:
                new_x = np.intp(last_x.ctypes.data)
                new_q, new_p = np.intp(last_q.ctypes.data), np.intp(last_p.ctypes.data)
                for row in range(count):
                    for lane in range(2 * rhs):
                        last_x[row, lane] = x[first + row, lane]
            matrix_product(  # X += P a.x
                p_of_x, for_x.ctypes.data, new_x, x_bytes, new_x, n,
                x_itemsize, STEP_ROWS, rhs, p_bytes, x_element, x_bytes, 0,
            )  # fmt: skip
            matrix_product(  # Q = Q a.q + A P a.ap
                pairs.ctypes.data, for_q.ctypes.data, zeros.ctypes.data, 0, new_q, 2 * n,
                itemsize, STEP_ROWS, n, pair_bytes, element, row_bytes, 0,
            )  # fmt: skip
            matrix_product(  # P = Q + P a.p
                old_p.ctypes.data, for_p.ctypes.data, new_q, row_bytes, new_p, n,
                itemsize, STEP_ROWS, n, row_bytes, element, row_bytes, 0,
            )  # fmt: skip
            if count < STEP_ROWS:
                for row in range(count):
                    for lane in range(2 * rhs):
                        x[first + row, lane] = last_x[row, lane]
                    for lane in range(2 * n):
                        q[first + row, lane] = last_q[row, lane]
                        p[first + row, lane] = last_p[row, lane]

    name = f"block_step_{n}_{rhs}_{8 * itemsize}_{8 * x_itemsize}"
    signature = _step_types(f"f{itemsize}", f"f{x_itemsize}")
    return compiled(step, name, signature, lambda x, *others: ceil(len(x) / STEP_ROWS))


def _step_types(real: str, real_x: str) -> types.FunctionType:
    """Types of x, q, p, ap, of the matrices that X, Q and P are made with, and of zeros."""
    read, written = array_type(real, 2), array_type(real, 2, writable=True)
    x, for_x = array_type(real_x, 2, writable=True), array_type(real_x, 2)
    return types.void(x, written, written, read, for_x, read, read, array_type("f8", 1))

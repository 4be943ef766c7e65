"""A piece of all fields stays in the first cache while their products are summed.

Sums are taken in fixed blocks of rows and added in double in a fixed order: the bits do not depend on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import add_lane_dots
from stages.lqcd.kernels.cpu.rows import block_count, block_rows_of, fold_of
from stages.lqcd.kernels.lane_gram import MOST_FIELDS, NOISE

STEP_BYTES = 4096
"""Of each field that stay in the first cache."""


def lane_gram(xs: NDArray) -> NDArray[np.complex128]:
    count, rhs = len(xs), xs.shape[-1]
    fold = fold_of(xs[0])
    basis = xs.reshape(count, -1, fold * rhs).view(xs.real.dtype)
    block_rows = block_rows_of(basis.shape[1], fold)
    pairs = count * (count + 1) // 2
    partial = np.empty((block_count(basis.shape[1], block_rows), pairs, fold * rhs), np.complex128)
    _gram_kernel(fold * rhs, basis.itemsize)(basis, block_rows, partial)
    gram = np.empty((count, count, rhs), np.complex128)
    rows, columns = _pairs(count)
    gram[rows, columns] = partial.sum(axis=0).reshape(pairs, fold, rhs).sum(axis=1)
    gram[columns, rows] = gram[rows, columns].conj()
    return gram


def lane_least_squares(gram: NDArray[np.complex128]) -> NDArray[np.complex128]:
    c = np.empty((len(gram) - 1, gram.shape[2]), np.complex128)
    _least_squares_kernel()(gram, c)
    return c


@cache
def _pairs(count: int) -> tuple[NDArray, NDArray]:
    """Row and column of each product, that of a field with itself and with those after it."""
    return np.triu_indices(count)


@cache
def _gram_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    row_bytes = 2 * rhs * itemsize
    step = max(1, STEP_BYTES // row_bytes)

    def gram(low: int, high: int, xs: NDArray, block_rows: int, partial: NDArray) -> None:
        count, rows = xs.shape[0], xs.shape[1]
        start, result = xs.ctypes.data, partial.ctypes.data
        pairs = partial.shape[1]
        for block in prange(low, high):
            for pair in range(pairs):
                for n in range(rhs):
                    partial[block, pair, n] = 0
            end = min(rows, (block + 1) * block_rows)
            for first in range(block * block_rows, end, step):
                terms = min(step, end - first)
                sums = result + block * pairs * 16 * rhs
                for j in range(count):
                    left = start + (j * rows + first) * row_bytes
                    for k in range(j, count):
                        right = start + (k * rows + first) * row_bytes
                        add_lane_dots(left, right, terms, sums, itemsize, rhs)
                        sums += 16 * rhs

    signature = types.void(array_type(f"f{itemsize}", 3), types.int64, array_type("c16", 3, writable=True))
    name = f"lane_gram_{rhs}_{8 * itemsize}"
    return compiled(gram, name, signature, lambda *arguments: len(arguments[-1]))


@cache
def _least_squares_kernel() -> Callable[..., None]:
    def least_squares(low: int, high: int, gram: NDArray, c: NDArray) -> None:
        size = len(c)
        for n in prange(low, high):
            factor = np.zeros((MOST_FIELDS, MOST_FIELDS), np.complex128)
            scale, inverse = np.zeros(MOST_FIELDS), np.zeros(MOST_FIELDS)
            for j in range(size):
                norm2 = gram[j + 1, j + 1, n].real
                if norm2 > 0:
                    scale[j] = 1 / np.sqrt(norm2)
            for j in range(size):
                pivot = 1.0 if scale[j] > 0 else 0.0
                total = gram[j + 1, 0, n] * scale[j]
                for k in range(j):
                    pivot -= factor[j, k].real ** 2 + factor[j, k].imag ** 2
                    total -= factor[j, k] * c[k, n]
                if pivot > NOISE:
                    inverse[j] = 1 / np.sqrt(pivot)
                for i in range(j + 1, size):
                    product = gram[i + 1, j + 1, n] * scale[i] * scale[j]
                    for k in range(j):
                        product -= factor[i, k] * np.conj(factor[j, k])
                    factor[i, j] = product * inverse[j]
                c[j, n] = total * inverse[j]
            for j in range(size - 1, -1, -1):
                total = c[j, n]
                for i in range(j + 1, size):
                    total -= np.conj(factor[i, j]) * c[i, n]
                c[j, n] = total * inverse[j]
            for j in range(size):
                c[j, n] *= scale[j]

    signature = types.void(array_type("c16", 3), array_type("c16", 2, writable=True))
    return compiled(least_squares, "lane_least_squares", signature, lambda gram, c: c.shape[1])

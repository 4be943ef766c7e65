"""Sums over fixed blocks of rows, added in a fixed order: the bits do not depend on the number of threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from math import ceil

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import dots_by_block
from stages.lqcd.kernels.cpu.matrix_product import matrix_product
from stages.lqcd.kernels.cpu.rows import BLOCK_ROWS, block_count, block_rows_of, fold_of, folded, real_rows

GRAM_ROWS = 128
"""Rows whose products are summed in the field's own precision before they are added up in double."""

PRODUCT_ROWS = 48
"""Rows of a product done together: a multiple of every tile's height."""


def widest() -> int:
    return sys.maxsize


def gram(x: NDArray, y: NDArray) -> NDArray[np.complex128]:
    rows = real_rows(x)
    partial = np.empty((block_count(len(rows)), x.shape[-1], 2 * y.shape[-1]))
    zeros = np.zeros(2 * y.shape[-1], rows.dtype)
    _gram_kernel(x.shape[-1], y.shape[-1], rows.itemsize)(rows, real_rows(y), zeros, partial)
    return partial.sum(axis=0).view(np.complex128)


def dots(x: NDArray, y: NDArray) -> NDArray[np.complex128]:
    rhs, fold = x.shape[-1], fold_of(x)
    left, right = folded(x, fold), folded(y, fold)
    sums = dots_by_block(left, right, block_rows_of(len(left), fold))
    return sums.reshape(-1, rhs).sum(axis=0)


def norms2(x: NDArray) -> NDArray[np.float64]:
    return dots(x, x).real.copy()


def rotate(x: NDArray, a: NDArray, out: NDArray) -> NDArray:
    _product(np.zeros((1, out.shape[-1]), x.dtype), 0, x, a, out)
    return out


def rotate_add(q: NDArray, p: NDArray, a: NDArray, out: NDArray) -> NDArray:
    _product(q, q.shape[-1] * q.itemsize, p, a, out)
    return out


def _product(added: NDArray, added_stride: int, x: NDArray, a: NDArray, out: NDArray) -> None:
    """``out = added + x a``, where a stride of 0 adds the one row of `added` everywhere."""
    coefficients = np.ascontiguousarray(a, x.dtype)
    kernel = _product_kernel(x.shape[-1], out.shape[-1], x.itemsize // 2)
    kernel(real_rows(added), added_stride, real_rows(x), real_rows(coefficients), real_rows(out))


@cache
def _gram_kernel(left: int, right: int, itemsize: int) -> Callable[..., None]:
    """partial[block] = x^H y over each block of rows; `zeros` is a row to start the sums from.

    Numba frees an array after its last use and takes no account of its address: an array whose address
    alone is used must be an argument, or be used as an array until the address is not needed any more.
    """
    element = 2 * itemsize
    x_bytes, y_bytes = left * element, right * element

    def gram(low: int, high: int, x: NDArray, y: NDArray, zeros: NDArray, partial: NDArray) -> None:
        rows, x_start, y_start, added = len(x), x.ctypes.data, y.ctypes.data, zeros.ctypes.data
        for block in prange(low, high):
            sums = np.empty((left, 2 * right), x.dtype)
            result = sums.ctypes.data
            for i in range(left):
                for lane in range(2 * right):
                    partial[block, i, lane] = 0
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, GRAM_ROWS):
                terms = min(GRAM_ROWS, end - first)
                chunk_x, chunk_y = x_start + first * x_bytes, y_start + first * y_bytes
                matrix_product(
                    chunk_x, chunk_y, added, 0, result, terms,
                    itemsize, left, right, element, x_bytes, y_bytes, 1,
                )  # fmt: skip
                for i in range(left):
                    for lane in range(2 * right):
                        partial[block, i, lane] += sums[i, lane]

    real = f"f{itemsize}"
    block_type, result_type = array_type(real, 2), array_type("f8", 3, writable=True)
    signature = types.void(block_type, block_type, array_type(real, 1), result_type)
    return compiled(
        gram, f"gram_{left}_{right}_{8 * itemsize}", signature, lambda x, y, zeros, partial: len(partial)
    )


@cache
def _product_kernel(inner: int, outer: int, itemsize: int) -> Callable[..., None]:
    """``out = added + x a`` row by row; the rows of x are copied first, so that out may be x."""
    element = 2 * itemsize
    x_bytes, out_bytes = inner * element, outer * element

    def product(
        low: int, high: int, added: NDArray, stride: int, x: NDArray, a: NDArray, out: NDArray
    ) -> None:
        rows = len(x)
        added_start, matrix, out_start = added.ctypes.data, a.ctypes.data, out.ctypes.data
        for block in prange(low, high):
            copy = np.empty((PRODUCT_ROWS, 2 * inner), x.dtype)
            factors = copy.ctypes.data
            end = min(rows, (block + 1) * BLOCK_ROWS)
            for first in range(block * BLOCK_ROWS, end, PRODUCT_ROWS):
                count = min(PRODUCT_ROWS, end - first)
                for row in range(count):
                    for lane in range(2 * inner):
                        copy[row, lane] = x[first + row, lane]
                start, result = added_start + first * stride, out_start + first * out_bytes
                if count == PRODUCT_ROWS:
                    matrix_product(
                        factors, matrix, start, stride, result, inner,
                        itemsize, PRODUCT_ROWS, outer, x_bytes, element, out_bytes, 0,
                    )  # fmt: skip
                else:
                    for row in range(count):
                        matrix_product(
                            factors + row * x_bytes, matrix, start + row * stride, stride,
                            result + row * out_bytes, inner,
                            itemsize, 1, outer, x_bytes, element, out_bytes, 0,
                        )  # fmt: skip

    real = f"f{itemsize}"
    block_type, written = array_type(real, 2), array_type(real, 2, writable=True)
    signature = types.void(block_type, types.int64, block_type, block_type, written)
    name = f"product_{inner}_{outer}_{8 * itemsize}"
    return compiled(product, name, signature, lambda *arguments: ceil(len(arguments[2]) / BLOCK_ROWS))

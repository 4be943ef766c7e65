"""A piece of y stays in the first cache while the fields of the basis pass by.

Few right-hand sides are widened to whole registers (`stages.lqcd.kernels.cpu.rows`). Sums are taken in fixed
blocks of rows and added in double in a fixed order: the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil

import numpy as np
from numba import prange, types
from numba.core import cgutils
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import add_lane_dots
from stages.lqcd.kernels.cpu.rows import block_count, block_rows_of, fold_of
from stages.lqcd.kernels.cpu.vector_ir import (
    REGISTER_BYTES,
    REGISTERS,
    Builder,
    Emitter,
    Value,
    emitted,
    split_lanes,
)
from stages.lqcd.kernels.lane_blas import MOST_FIELDS, NOISE

STEP_BYTES = 16384
"""Of y that stay in the first cache while the basis passes by."""

POLYNOMIAL_BYTES = 4096
"""Of each field of a polynomial that stay there until they are read again."""

GRAM_BYTES = 4096
"""Of each field that stay in the first cache."""


def lane_dots(xs: NDArray, y: NDArray) -> NDArray[np.complex128]:
    count, rhs, fold = len(xs), y.shape[-1], fold_of(y)
    basis, rows = _reals(xs, count, fold), _reals(y, 1, fold)
    block_rows = block_rows_of(basis.shape[1], fold)
    partial = np.empty((block_count(basis.shape[1], block_rows), count, fold * rhs), np.complex128)
    _dots_kernel(fold * rhs, rows.itemsize)(basis, rows[0], block_rows, partial)
    return partial.sum(axis=0).reshape(count, fold, rhs).sum(axis=1)


def lane_update(y: NDArray, xs: NDArray, a: NDArray, scale: NDArray | None = None) -> None:
    fold, dtype = fold_of(y), y.real.dtype
    rows, factors = _reals(y, 1, fold)[0], _factors(a, fold, dtype)
    first = factors if scale is None else _factors(scale[None], fold, dtype)
    kernel = _update_kernel(rows.shape[1] // 2, rows.itemsize)
    kernel(rows, _reals(xs, len(xs), fold), factors, first, scale is not None)


def lane_polynomial(y: NDArray, v: NDArray, c: NDArray) -> None:
    fold, dtype = fold_of(y), y.real.dtype
    rows = _reals(y, 1, fold)[0]
    kernel = _polynomial_kernel(rows.shape[1] // 2, rows.itemsize)
    kernel(rows, _reals(v, len(v), fold), _factors(c, fold, dtype), _factors(-c, fold, dtype))


def _factors(a: NDArray, fold: int, dtype: np.dtype) -> NDArray:
    """Re a, Re a and -Im a, Im a of each right-hand side: ``[K, 2, 2 N fold]``, what `_add_scaled` takes."""
    count, rhs = a.shape
    factors = np.empty((count, 2, fold, rhs, 2), dtype)
    factors[:, 0] = a.real[:, None, :, None]
    factors[:, 1, :, :, 1] = a.imag[:, None]
    np.negative(factors[:, 1, :, :, 1], out=factors[:, 1, :, :, 0])
    return factors.reshape(count, 2, -1)


def _reals(fields: NDArray, count: int, fold: int) -> NDArray:
    """`count` fields as reals ``[count, rows / fold, 2 N fold]``, without a copy."""
    return fields.reshape(count, -1, fold * fields.shape[-1]).view(fields.real.dtype)


@cache
def _dots_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    row_bytes = 2 * rhs * itemsize
    step = max(1, STEP_BYTES // row_bytes)

    def dots(low: int, high: int, xs: NDArray, y: NDArray, block_rows: int, partial: NDArray) -> None:
        count, rows = xs.shape[0], xs.shape[1]
        x_start, y_start, result = xs.ctypes.data, y.ctypes.data, partial.ctypes.data
        for block in prange(low, high):
            for k in range(count):
                for n in range(rhs):
                    partial[block, k, n] = 0
            end = min(rows, (block + 1) * block_rows)
            for first in range(block * block_rows, end, step):
                terms = min(step, end - first)
                for k in range(count):
                    field = x_start + (k * rows + first) * row_bytes
                    sums = result + (block * count + k) * 16 * rhs
                    add_lane_dots(field, y_start + first * row_bytes, terms, sums, itemsize, rhs)

    real, result_type = f"f{itemsize}", array_type("c16", 3, writable=True)
    signature = types.void(array_type(real, 3), array_type(real, 2), types.int64, result_type)
    name = f"lane_dots_{rhs}_{8 * itemsize}"
    return compiled(dots, name, signature, lambda *arguments: len(arguments[-1]))


@cache
def _update_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    row_bytes = 2 * rhs * itemsize
    step = max(1, STEP_BYTES // row_bytes)

    def update(
        low: int, high: int, y: NDArray, xs: NDArray, factors: NDArray, scale: NDArray, scaled: bool
    ) -> None:
        count, rows = xs.shape[0], len(y)
        x_start, y_start = xs.ctypes.data, y.ctypes.data
        numbers, first_numbers = factors.ctypes.data, scale.ctypes.data
        for block in prange(low, high):
            first = block * step
            terms, to = min(step, rows - first), y_start + first * row_bytes
            if scaled:
                _add_scaled(to, to, terms, first_numbers, itemsize, rhs, 1)
            for k in range(count):
                field = x_start + (k * rows + first) * row_bytes
                _add_scaled(to, field, terms, numbers + 2 * k * row_bytes, itemsize, rhs, 0)

    real = f"f{itemsize}"
    written, basis = array_type(real, 2, writable=True), array_type(real, 3)
    signature = types.void(written, basis, basis, basis, types.boolean)
    name = f"lane_update_{rhs}_{8 * itemsize}"
    return compiled(update, name, signature, lambda y, *others: ceil(len(y) / step))


@cache
def _polynomial_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    row_bytes = 2 * rhs * itemsize
    step = max(1, POLYNOMIAL_BYTES // row_bytes)

    def polynomial(low: int, high: int, y: NDArray, v: NDArray, factors: NDArray, opposite: NDArray) -> None:
        count, rows = len(factors), len(y)
        v_start, y_start = v.ctypes.data, y.ctypes.data
        numbers, negative = factors.ctypes.data, opposite.ctypes.data
        for block in prange(low, high):
            first = block * step
            terms, place = min(step, rows - first), first * row_bytes
            for k in range(count):
                field, number = v_start + k * rows * row_bytes + place, numbers + 2 * k * row_bytes
                _add_scaled(y_start + place, field, terms, number, itemsize, rhs, 0)
            for k in range(count):
                field, number = v_start + (k + 1) * rows * row_bytes + place, negative + 2 * k * row_bytes
                _add_scaled(v_start + place, field, terms, number, itemsize, rhs, 0)

    real = f"f{itemsize}"
    written, basis = array_type(real, 2, writable=True), array_type(real, 3)
    changed = array_type(real, 3, writable=True)
    signature = types.void(written, changed, basis, basis)
    name = f"lane_polynomial_{rhs}_{8 * itemsize}"
    return compiled(polynomial, name, signature, lambda y, *others: ceil(len(y) / step))


@emitted
def _add_scaled(
    builder: Builder,
    y: Value, x: Value, rows: Value, factors: Value,
    itemsize: int, rhs: int, fresh: int,
) -> None:  # fmt: skip
    """y[n] += a[n] x[n] in so many rows, or y[n] = a[n] x[n]; x may be y.

    Takes the addresses of y and x, the number of rows, and the address of two rows of `_factors`; then the
    literals size of a real, number of right-hand sides and 1 to fresh what y was.
    """
    row_bytes, tile = 2 * rhs * itemsize, REGISTERS // 4 * REGISTER_BYTES // itemsize
    emit = Emitter(builder, itemsize)
    for first in range(0, 2 * rhs, tile):
        start = first * itemsize
        registers = split_lanes(min(tile, 2 * rhs - first), itemsize)
        straight = [emit.load(factors, start + place, width) for place, width in registers]
        crossed = [emit.load(factors, row_bytes + start + place, width) for place, width in registers]
        with cgutils.for_range(builder, rows) as loop:
            shift = emit.offset(emit.index(start), loop.index, row_bytes)
            to, source = builder.add(y, shift), builder.add(x, shift)
            for (place, width), re, im in zip(registers, straight, crossed, strict=True):
                field = emit.load(source, place, width)
                total = builder.fmul(re, field) if fresh else emit.fma(re, field, emit.load(to, place, width))
                emit.store(emit.fma(im, emit.swapped(field), total), to, place)


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
    step = max(1, GRAM_BYTES // row_bytes)

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

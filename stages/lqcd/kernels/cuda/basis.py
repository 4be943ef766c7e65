"""cuBLAS on matrices where they lie: of spread ones, each device multiplies its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.block_blas import add_product, product_sums, sum_partials
from stages.lqcd.kernels.cuda.cublas import gemm
from stages.lqcd.kernels.cuda.devices.own_rows import in_turns, summed
from stages.lqcd.kernels.cuda.launch import MAX_RHS
from stages.lqcd.kernels.operands import rows_of

SLAB_BYTES = 32 << 20
"""Of a slab that is computed apart from its place: it stays in the second-level cache."""

PARTS = 256
"""Runs of rows that a projection sums apart: a result of few elements gives the device too little to do."""

PARTIAL_BYTES = 128 << 20
"""Of the sums of such runs that are held at a time."""

SINGLE_ROWS = 1024
"""Rows whose products are summed in single precision before they are added up in double."""


def project(V: cupy.ndarray, x: cupy.ndarray) -> cupy.ndarray:
    return summed(_project_rows, rows_of(V), rows_of(x))


def add_combination(out: cupy.ndarray, V: cupy.ndarray, C: Any) -> None:
    coefficients = cupy.asarray(C).astype(out.dtype, order="C")
    in_turns(_add_combination, rows_of(V), rows_of(out), small=(coefficients,))


def rotate_in_place(V: cupy.ndarray, Q: Any) -> None:
    coefficients = cupy.asarray(Q).astype(V.dtype, order="C")
    in_turns(_rotate, rows_of(V), small=(coefficients,))


def _project_rows(rows: cupy.ndarray, block: cupy.ndarray) -> cupy.ndarray:
    if rows.dtype == block.dtype:
        return _project(rows, block)
    if _fits(block):
        return product_sums(rows, block)
    result = cupy.zeros((rows.shape[1], block.shape[1]), np.complex128)
    for slab in _slabs(rows):
        result += _project(rows[slab].astype(np.complex128), block[slab].astype(np.complex128))
    return result


def _add_combination(C: cupy.ndarray, rows: cupy.ndarray, block: cupy.ndarray) -> Iterator[None]:
    if rows.dtype == block.dtype:
        _multiply(rows, C, block, 1)
    elif _fits(block):
        add_product(block, rows, C)
        yield
    else:
        for slab in _slabs(rows):
            _multiply(rows[slab].astype(block.dtype), C, block[slab], 1)
            yield


def _fits(block: cupy.ndarray) -> bool:
    """Whether kernels read vectors in single precision beside this block in double, once and as they lie."""
    return block.dtype == np.complex128 and block.shape[1] <= MAX_RHS and block.flags.c_contiguous


def _rotate(Q: cupy.ndarray, rows: cupy.ndarray) -> Iterator[None]:
    columns = Q.shape[1]
    for slab in _slabs(rows):
        product = cupy.empty((len(rows[slab]), columns), rows.dtype)
        _multiply(rows[slab], Q, product, 0)
        rows[slab, :columns] = product
        yield


def _project(V: cupy.ndarray, x: cupy.ndarray) -> cupy.ndarray:
    """V^H x of rows of one dtype: equal runs of rows as batches, the rest by itself, sums in double."""
    rows, k, n = len(V), V.shape[1], x.shape[1]
    batch = max(1, PARTIAL_BYTES // max(1, k * n * V.itemsize))
    height = SINGLE_ROWS if V.dtype == np.complex64 else max(1, -(-rows // min(PARTS, batch)))
    result = cupy.zeros((k, n), np.complex128)
    first = 0
    while first < rows and result.size:
        runs = min(batch, (rows - first) // height)
        terms, runs = (height, runs) if runs else (rows - first, 1)
        partial = cupy.empty((runs, k, n), V.dtype)
        project_runs(V[first:], x[first:], terms, partial)
        result += sum_partials(partial.astype(np.complex128, copy=False))
        first += runs * terms
    return result


def project_runs(V: cupy.ndarray, x: cupy.ndarray, terms: int, partial: cupy.ndarray) -> None:
    """partial[r] = V^H x over the r-th run of so many rows."""
    runs, k, n = partial.shape
    left, right = ((each.data.ptr, _stride(each), terms * _stride(each)) for each in (V, x))
    product = partial.data.ptr, n, k * n, runs
    gemm("StridedBatched", V.dtype, (n, k, terms), right, left, product, adjoint=True)


def _multiply(V: cupy.ndarray, C: cupy.ndarray, out: cupy.ndarray, beta: int) -> None:
    """``out = beta out + V C``, all of one dtype."""
    k, n = C.shape
    rows, product = ((each.data.ptr, _stride(each)) for each in (V, out))
    gemm("", V.dtype, (n, len(V), k), (C.data.ptr, n), rows, product, beta=beta)


def _stride(rows: cupy.ndarray) -> int:
    """Elements from one row to the next; cuBLAS wants no fewer than there are columns."""
    return max(rows.strides[0] // rows.itemsize, rows.shape[1])


def _slabs(rows: cupy.ndarray) -> Iterator[slice]:
    height = max(1024, SLAB_BYTES // max(1, rows.shape[1] * 16))
    for first in range(0, len(rows), height):
        yield slice(first, first + height)

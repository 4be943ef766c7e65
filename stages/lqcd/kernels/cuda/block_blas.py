"""Sums over blocks of threads, added in a fixed order."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import block_blas as shapes
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.expressions import add as add
from stages.lqcd.kernels.expressions import affine as affine
from stages.lqcd.kernels.expressions import difference as difference
from stages.lqcd.kernels.expressions import scale as scale

CUBLAS_COLUMNS = 24
"""From this width on a double Gram matrix goes through cuBLAS, which uses double-precision tensor cores."""


def gram(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    rows, nx, ny = _rows(x), x.shape[-1], y.shape[-1]
    if x.dtype == np.complex128 and min(nx, ny) >= CUBLAS_COLUMNS:
        return _gram_cublas(x, y, rows)
    kernel = shapes.gram(nx, ny, x.dtype, rows)
    partials = cupy.empty((kernel.grid[0], nx, ny), np.complex128)
    run(kernel, x, y, partials, np.int64(rows))
    return sum_partials(partials)


def _gram_cublas(x: cupy.ndarray, y: cupy.ndarray, rows: int) -> cupy.ndarray:
    """x^H y as y x^H of the column-major transposes that cuBLAS sees; x.conj() would cost a copy."""
    from cupy.cuda import cublas  # loads a large library that nothing else here needs

    nx, ny = x.shape[-1], y.shape[-1]
    result = cupy.empty((nx, ny), np.complex128)
    one, zero = np.array(1, np.complex128), np.array(0, np.complex128)
    cublas.zgemm(
        *(cupy.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_C, ny, nx, rows),
        *(one.ctypes.data, y.data.ptr, ny, x.data.ptr, nx),
        *(zero.ctypes.data, result.data.ptr, ny),
    )
    return result


def dots(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    return slice_dots(x, y, 1)[0]


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, slices: int) -> cupy.ndarray:
    """conj(x) . y of each right-hand side over `slices` equal runs of rows, complex128 ``[slices, N]``."""
    rows, n = _rows(x) // slices, x.shape[-1]
    kernel = columns.reduction("dots", n, x.dtype, rows, slices)
    sums = cupy.empty((slices, n), np.complex128)
    run(kernel, x, y, sums, *grid_sums(kernel, 2 * n), np.int64(rows))
    return sums


def norms2(x: cupy.ndarray) -> cupy.ndarray:
    rows, n = _rows(x), x.shape[-1]
    kernel = columns.reduction("norms2", n, x.dtype, rows)
    sums = cupy.empty(n)
    run(kernel, x, sums, *grid_sums(kernel, n), np.int64(rows))
    return sums


def sum_partials(partials: cupy.ndarray, sums: cupy.ndarray | None = None) -> cupy.ndarray:
    """Sum over the first axis of a float64 or complex128 array, in a fixed order; into `sums` if given."""
    sums = cupy.empty(partials.shape[1:], partials.dtype) if sums is None else sums
    count = sums.size * (partials.itemsize // 8)
    run(columns.sum_partials(count), partials, sums, np.int32(len(partials)), np.int32(count))
    return sums


def update(y: cupy.ndarray, x: cupy.ndarray, a: cupy.ndarray) -> None:
    multiply_add(x, a, y, y)


def rotate(x: cupy.ndarray, a: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    multiply_add(x, a, None, out)
    return out


def rotate_add(q: cupy.ndarray, p: cupy.ndarray, a: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    multiply_add(p, a, q, out)
    return out


def multiply_add(
    x: cupy.ndarray,
    a: cupy.ndarray,
    base: cupy.ndarray | None,
    out: cupy.ndarray,
    condition: cupy.ndarray | None = None,
) -> None:
    """``out = base + x a``, or ``x a``; nothing where the first element of `condition`, float64, is zero."""
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    rows = _rows(x)
    kernel = shapes.multiply_add(x.shape[-1], out.shape[-1], x.dtype, rows)
    added, proceed = (np.uintp(0) if array is None else array for array in (base, condition))
    run(kernel, x, coefficients, added, out, proceed, np.int64(rows))


def _rows(block: cupy.ndarray) -> int:
    return block.size // block.shape[-1]

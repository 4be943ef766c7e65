"""Sums over blocks of threads, added in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.arithmetic import add as add
from stages.lqcd.kernels.cuda.arithmetic import affine as affine
from stages.lqcd.kernels.cuda.arithmetic import difference as difference
from stages.lqcd.kernels.cuda.arithmetic import scale as scale
from stages.lqcd.kernels.cuda.columns import grid_sums, reduction
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.cublas import gemm
from stages.lqcd.kernels.cuda.devices.group import current_group, on_each_device
from stages.lqcd.kernels.cuda.devices.partition import PartialWork, RowWork
from stages.lqcd.kernels.cuda.launch import (
    MAX_RHS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    power_of_two,
    real_of,
)

CUBLAS_COLUMNS = 24
"""From this width on a double Gram matrix goes through cuBLAS, which uses double-precision tensor cores."""


def widest() -> int:
    return MAX_RHS


def gram(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    rows, nx, ny = _rows(x), x.shape[-1], y.shape[-1]
    if x.dtype == np.complex128 and min(nx, ny) >= CUBLAS_COLUMNS and current_group() is None:
        return _gram_cublas(x, y, rows)
    kernel = gram_launch(nx, ny, x.dtype, rows)
    shape = kernel.grid[0], nx, ny
    (partials,) = on_each_device(lambda _: (cupy.empty(shape, np.complex128),))
    run(kernel, x, y, partials, np.int64(rows), np.int64(nx))
    sums = cupy.empty(shape[1:], np.complex128)
    sum_all_partials(partials, sums, np.int32(kernel.grid[0]))
    return sums


def _gram_cublas(x: cupy.ndarray, y: cupy.ndarray, rows: int) -> cupy.ndarray:
    """x^H y; x.conj() would cost a copy."""
    nx, ny = x.shape[-1], y.shape[-1]
    result = cupy.empty((nx, ny), np.complex128)
    left, right, product = ((each.data.ptr, each.shape[-1]) for each in (x, y, result))
    gemm("", x.dtype, (ny, nx, rows), right, left, product, adjoint=True)
    return result


def dots(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    return slice_dots(x, y, 1)[0]


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, slices: int) -> cupy.ndarray:
    """conj(x) . y of each right-hand side over `slices` equal runs of rows, complex128 ``[slices, N]``."""
    rows, n = _rows(x) // slices, x.shape[-1]
    kernel = reduction("dots", n, x.dtype, rows, slices)
    sums = cupy.empty((slices, n), np.complex128)
    run(kernel, x, y, sums, *grid_sums(kernel, 2 * n), np.int64(rows))
    return sums


def norms2(x: cupy.ndarray) -> cupy.ndarray:
    rows, n = _rows(x), x.shape[-1]
    kernel = reduction("norms2", n, x.dtype, rows)
    sums = cupy.empty(n)
    run(kernel, x, sums, *grid_sums(kernel, n), np.int64(rows))
    return sums


def sum_partials(partials: cupy.ndarray) -> cupy.ndarray:
    """Sum over the first axis of a float64 or complex128 array, in a fixed order."""
    sums = cupy.empty(partials.shape[1:], partials.dtype)
    count = sums.size * (sums.itemsize // 8)
    run(sum_partials_launch(count, shared=False), partials, sums, np.int32(len(partials)), np.int32(count))
    return sums


def sum_all_partials(partials: Any, sums: cupy.ndarray, parts: Any) -> None:
    """Sums over ``[parts, *sums.shape]`` into `sums`; those of devices are added in their order.

    partials, parts: such an array and its length, int32, or those of each device that shares the lattice.
    """
    count = sums.size * (sums.itemsize // 8)
    run(sum_partials_launch(count), partials, sums, parts, np.int32(count))


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
    """``out = base + x a``, or ``x a``; nothing where the first element of `condition`, float64, is zero.

    base and out may be double where x is single.
    """
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    rows = _rows(x)
    kernel = multiply_add_launch(x.shape[-1], out.shape[-1], x.dtype, rows, out.dtype)
    added, proceed = (np.uintp(0) if array is None else array for array in (base, condition))
    run(kernel, x, coefficients, added, out, proceed, np.int64(rows), np.int64(x.shape[-1]))


def add_product(out: cupy.ndarray, x: cupy.ndarray, a: cupy.ndarray) -> None:
    """``out += x a`` on this device, x ``[rows, k]`` columns of a wider array, maybe in less precision."""
    rows, nothing = len(x), np.uintp(0)
    for some, place, unit, stride in _pieces(x):
        factor, shape = cupy.ascontiguousarray(a[some], np.complex128), (some.stop - some.start, out.shape[1])
        kernel = replace(multiply_add_launch(*shape, x.dtype, rows, out.dtype, unit), work=None)
        run(kernel, place, factor, out, out, nothing, np.int64(rows), stride)


def product_sums(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """x^H y on this device, summed in double; x as of `add_product`, y in the precision of the sums."""
    rows, n = len(x), y.shape[1]
    result = cupy.empty((x.shape[1], n), np.complex128)
    for some, place, unit, stride in _pieces(x):
        columns = some.stop - some.start
        kernel = replace(gram_launch(columns, n, x.dtype, rows, y.dtype, unit), work=None)
        partials = cupy.empty((kernel.grid[0], columns, n), np.complex128)
        run(kernel, place, y, partials, np.int64(rows), stride)
        result[some] = sum_partials(partials)
    return result


def _pieces(x: cupy.ndarray) -> Iterator[tuple[slice, np.uintp, int, np.int64]]:
    """Columns of x that a kernel takes at a time: which, where, the unit of its copies, elements per row."""
    for first in range(0, x.shape[1], MAX_RHS):
        some = slice(first, min(first + MAX_RHS, x.shape[1]))
        place = x[:, some].data.ptr
        odd = (place | (some.stop - first) * x.itemsize | x.strides[0]) % 16
        yield some, np.uintp(place), 8 if odd else 16, np.int64(x.strides[0] // x.itemsize)


def _rows(block: cupy.ndarray) -> int:
    return block.size // block.shape[-1]


@cache
def gram_launch(
    nx: int, ny: int, dtype: np.dtype, rows: int, y_dtype: np.dtype | None = None, unit: int = 0
) -> Launch:
    """Partial Gram matrices, complex128 ``[grid, nx, ny]``: a ring of 3 stages of rows of x and y.

    y is of the dtype of x unless given. unit: bytes at whose multiples rows of x start, 0 if they follow
    each other.

    Wide blocks are bound by shared-memory reads: 8 x 4 elements a thread; narrow ones by threads: 2 x 2.
    """
    check_rhs(nx, ny)
    y_dtype = y_dtype or dtype
    single = y_dtype == np.complex64
    x, y = 8 if nx >= 16 else min(2, nx), 4 if ny >= 16 else min(2, ny)
    threads = 64 if min(nx, ny) >= 16 else 128
    stage_bytes = 32768 if single and nx + ny > 64 else 16384 if single else 8192
    tiles = ceil(nx / x) * ceil(ny / y)
    slices = power_of_two(threads // tiles)  # at least one thread for each tile
    granule = max(2, slices)
    row_bytes = nx * dtype.itemsize + ny * y_dtype.itemsize
    chunk = max(granule, stage_bytes // row_bytes // granule * granule)
    flush = ceil(16 * slices / chunk) if single else 0
    ring = 3 * chunk * row_bytes + 8 * y_dtype.itemsize
    scratch = 2 * x * y * tiles * slices // 2 * 8
    return Launch(
        "gram.cu",
        instance("gram_partials", dtype, real_of(y_dtype), nx, ny, x, y, slices, chunk, flush, unit),
        (min(ceil(rows / chunk), 4 * MULTIPROCESSORS),),
        tiles * slices,
        max(ring, scratch),
        work=RowWork(rows),
    )


@cache
def multiply_add_launch(
    nx: int, ny: int, dtype: np.dtype, rows: int, out_dtype: np.dtype | None = None, unit: int | None = None
) -> Launch:
    """``out = base + x a``, out of the dtype of x unless given; rows of x start at multiples of `unit` bytes.

    2 x 2 elements a thread for narrow blocks, more where arithmetic limits.
    """
    check_rhs(nx, ny)
    out_dtype = out_dtype or dtype
    single = out_dtype == np.complex64
    columns = min(ny, 4 if single and ny > 16 else 2)
    thread_rows = 4 if ny > (32 if single else 16) else 2
    lanes = ceil(ny / columns)
    row_bytes = nx * dtype.itemsize
    stages_per_row = 2 * (row_bytes + 16)
    unit = unit or (8 if row_bytes % 16 else 16)
    most = 72 * 1024 // (thread_rows * stages_per_row)
    groups = power_of_two(min(128 // lanes, most))
    return Launch(
        "multiply_add.cu",
        instance("multiply_add", dtype, real_of(out_dtype), nx, ny, thread_rows, columns, groups, unit),
        (min(ceil(rows / (groups * thread_rows)), 8 * MULTIPROCESSORS),),
        lanes * groups,
        nx * lanes * columns * out_dtype.itemsize + groups * thread_rows * stages_per_row,
        work=RowWork(rows),
    )


@cache
def sum_partials_launch(count: int, shared: bool = True) -> Launch:
    """The second stage of reductions to `count` doubles, matrices and currents, with few partial sums.

    shared: devices that share the lattice have partial sums each, where there are any.
    """
    blocks = ceil(count / 32)
    work = PartialWork(blocks, 32) if shared else None
    return Launch("sum_partials.cu", "sum_partials", (blocks,), 1024, work=work)

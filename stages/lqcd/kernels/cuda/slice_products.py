"""Batched cuBLAS on matrices where they lie: rows of one spin, colour and parity of a slice are strided.

It sees row-major ``[R, k]`` as column-major ``[k, R]``: V^H x is computed as its transpose x^T conj(V). In
complex64 sums of up to 1024 terms are in single, of these in double.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import slice_products as shapes
from stages.lqcd.kernels.expressions import combination as combination
from stages.lqcd.kernels.expressions import slice_add as slice_add
from stages.lqcd.kernels.expressions import slice_norms2 as slice_norms2
from stages.lqcd.kernels.expressions import slice_scale as slice_scale
from stages.lqcd.kernels.expressions import spin_pairs as spin_pairs
from stages.lqcd.kernels.expressions import weighted as weighted
from stages.lqcd.kernels.gamma import SPINS


def sink_projection(
    vectors: cupy.ndarray, solutions: cupy.ndarray, out: cupy.ndarray, first: int = 0
) -> cupy.ndarray:
    _, fields, _, n = solutions.shape
    return _multiply(
        vectors, solutions, out, shapes.sink_runs(vectors.shape, fields, n, first, vectors.dtype)
    )


def slice_gram(left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    return _multiply(left, right, out, shapes.gram_runs(left.shape, right.shape[-1], left.dtype))


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    runs = [shapes.gram_runs(vectors, columns, dtype)]
    if columns % SPINS == 0:
        fields = vectors[0] * vectors[2]
        runs.append(shapes.sink_runs(vectors, fields, columns // SPINS, 0, dtype))
    return max(part.workspace_bytes(dtype) for part in runs)


def _multiply(left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray, runs: shapes.Runs) -> cupy.ndarray:
    """out[slice, group] = the sum over runs of left^H right."""
    out.fill(0)
    for slices, part in runs.chunks(left.dtype):
        _add_products(left, right, out[slices], runs, (slices, part))
    return out


def _add_products(
    left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray, runs: shapes.Runs, chunk: tuple[slice, slice]
) -> None:
    """Add the sums over the runs of a chunk to `out`; its partial sums are free again when this returns."""
    addresses = np.stack(
        [
            left.data.ptr + runs.left[chunk] * left.itemsize,
            right.data.ptr + runs.right[chunk] * right.itemsize,
        ]
    ).astype(np.uint64)
    _, slices, terms, groups = addresses.shape
    partial = cupy.empty((slices, terms, groups, runs.left_columns, runs.right_columns), left.dtype)
    _multiply_runs(addresses.reshape(2, -1), partial, runs)
    results = out.size // slices
    run(shapes.add_runs(results, slices, left.dtype), partial, out, np.int32(terms), np.int32(results))


def _multiply_runs(addresses: np.ndarray, partial: cupy.ndarray, runs: shapes.Runs) -> None:
    """partial[slice, run, group] = left^H right from the `addresses` of both, uint64 ``[2, product]``."""
    from cupy.cuda import cublas  # loads a large library that nothing else here needs

    k, n, count = runs.left_columns, runs.right_columns, addresses.shape[1]
    results = partial.data.ptr + np.arange(count, dtype=np.uint64) * np.uint64(k * n * partial.itemsize)
    left, right, product = cupy.asarray(np.stack([*addresses, results]))
    one, zero = np.array(1, partial.dtype), np.array(0, partial.dtype)
    call = cublas.zgemmBatched if partial.dtype == np.complex128 else cublas.cgemmBatched
    call(
        *(cupy.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_C),
        *(n, k, runs.rows, one.ctypes.data),
        *(right.data.ptr, runs.right_stride, left.data.ptr, runs.left_stride),
        *(zero.ctypes.data, product.data.ptr, n, count),
    )

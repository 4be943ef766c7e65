"""Strided-batched cuBLAS on matrices where they lie: of spread ones, each device works on its own systems."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.cuda.basis import PARTIAL_BYTES, SINGLE_ROWS, SLAB_BYTES, project_runs
from stages.lqcd.kernels.cuda.cublas import gemm
from stages.lqcd.kernels.cuda.devices.own_rows import in_turns, joined, local, on_own_rows
from stages.lqcd.kernels.cuda.launch import largest_divisor

PRODUCTS = 48
"""In which a projection is computed at least, if systems are fewer: few leave multiprocessors idle."""


def project(V: cupy.ndarray, x: cupy.ndarray) -> cupy.ndarray:
    result = cupy.empty((len(V), V.shape[2], x.shape[2]), np.complex128)
    on_own_rows(_project, V, x, result)
    return result


def add_combination(out: cupy.ndarray, V: cupy.ndarray, C: Any) -> None:
    on_own_rows(_add_combination, V, out, cupy.asarray(C).astype(V.dtype, order="C"))


def rotate_in_place(V: cupy.ndarray, Q: Any) -> None:
    in_turns(_rotate, V, cupy.asarray(Q).astype(V.dtype, order="C"))


def rayleigh(block: cupy.ndarray, image: cupy.ndarray) -> tuple[cupy.ndarray, cupy.ndarray]:
    quotients, norms2 = zip(*on_own_rows(expressions.rayleigh, block, image), strict=True)
    return joined(quotients), joined(norms2)


def _project(V: cupy.ndarray, x: cupy.ndarray, out: cupy.ndarray) -> None:
    systems, rows, k = V.shape
    single = V.dtype == np.complex64
    height = largest_divisor(
        rows, SINGLE_ROWS if single else ceil(rows / max(1, PRODUCTS // max(1, systems)))
    )
    runs = rows // height
    if runs == 1 and not single:
        project_runs(_rows(V), _rows(x), height, out)
        return
    together = max(1, PARTIAL_BYTES // max(1, runs * k * x.shape[2] * V.itemsize))
    for first in range(0, systems, together):
        some = slice(first, min(first + together, systems))
        partial = cupy.empty(((some.stop - first) * runs, k, x.shape[2]), V.dtype)
        project_runs(_rows(V[some]), _rows(x[some]), height, partial)
        partial.reshape(-1, runs, *partial.shape[1:]).sum(axis=1, dtype=np.complex128, out=out[some])


def _add_combination(V: cupy.ndarray, out: cupy.ndarray, C: cupy.ndarray) -> None:
    _multiply(V, local(C), out, 1)


def _rotate(V: cupy.ndarray, Q: cupy.ndarray) -> Iterator[None]:
    coefficients, columns = local(Q), Q.shape[-1]
    systems, rows, _ = V.shape
    height = min(rows, max(64, SLAB_BYTES // max(1, systems * columns * V.itemsize)))
    for first in range(0, rows, height):
        slab = V[:, first : first + height]
        product = cupy.empty((systems, slab.shape[1], columns), V.dtype)
        _multiply(slab, coefficients, product, 0)
        slab[..., :columns] = product
        yield


def _rows(V: cupy.ndarray) -> cupy.ndarray:
    """All systems' rows as one matrix ``[S n, k]``, where they lie."""
    systems, rows, k = V.shape
    return cupy.ndarray((systems * rows, k), V.dtype, V.data, V.strides[1:])


def _multiply(V: cupy.ndarray, C: cupy.ndarray, out: cupy.ndarray, beta: int) -> None:
    """out_s = beta out_s + V_s C_s, all of one dtype."""
    _, k, n = C.shape
    if not out.size or not k:
        return
    rows, product = ((each.data.ptr, *_strides(each)) for each in (V, out))
    factors, sizes = (C.data.ptr, n, k * n), (n, V.shape[1], k)
    gemm("StridedBatched", V.dtype, sizes, factors, rows, (*product, len(V)), beta=beta)


def _strides(V: cupy.ndarray) -> tuple[int, int]:
    """Elements from one row to the next and from one system to the next."""
    return max(V.strides[1] // V.itemsize, V.shape[2]), V.strides[0] // V.itemsize

"""Matrix products of one aggregate and chirality at a time, compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.aggregation import PackedVectors
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.matrix_product import matrix_product


def pack(vectors: NDArray, sites: NDArray, fine_sites: int) -> PackedVectors:
    return PackedVectors(vectors, sites, fine_sites)


def for_products(packed: PackedVectors) -> PackedVectors:
    return packed


def gram(vectors: NDArray) -> NDArray[np.complex128]:
    # of the real and the imaginary parts as columns: no conjugate copy of V
    parts = vectors.view(vectors.real.dtype).astype(np.float64)
    products = parts.swapaxes(-1, -2) @ parts
    real, imaginary = products[..., ::2, :], products[..., 1::2, :]
    return real[..., ::2] + imaginary[..., 1::2] + 1j * (real[..., 1::2] - imaginary[..., ::2])


def restrict(packed: PackedVectors, x: NDArray, out: NDArray) -> NDArray:
    kernel = _restriction(packed.components, packed.vector_count, x.shape[2], x.itemsize // 2)
    kernel(packed.vectors.ctypes.data, *packed.vectors.strides[:2], packed.sites, _reals(x), _reals(out))
    return out


def add_prolonged(packed: PackedVectors, coarse: NDArray, out: NDArray) -> NDArray:
    kernel = _prolongation(packed.components, packed.vector_count, out.shape[2], out.itemsize // 2)
    kernel(packed.vectors.ctypes.data, *packed.vectors.strides[:2], packed.sites, _reals(coarse), _reals(out))
    return out


def _reals(field: NDArray) -> NDArray:
    return field.view(field.real.dtype)


@cache
def _restriction(n: int, vectors: int, rhs: int, itemsize: int) -> Callable[..., None]:
    """``out = V^H x`` of every aggregate and chirality: its rows of x are gathered, then one product."""
    element = 2 * itemsize
    pitch, row = rhs * element, vectors * element

    def restrict(
        low: int,
        high: int,
        start: int,
        aggregate_bytes: int,
        chirality_bytes: int,
        sites: NDArray,
        x: NDArray,
        out: NDArray,
    ) -> None:
        count = sites.shape[1]
        result = out.ctypes.data
        zeros = np.zeros(2 * rhs, x.dtype)
        nothing = zeros.ctypes.data
        for task in prange(low, high):
            aggregate, chirality = task // 2, task % 2
            rows = np.empty((count, n, 2 * rhs), x.dtype)
            for place in range(count):
                site = sites[aggregate, place]
                for i in range(n):
                    for lane in range(2 * rhs):
                        rows[place, i, lane] = x[site, chirality * n + i, lane]
            left = start + aggregate * aggregate_bytes + chirality * chirality_bytes
            matrix_product(
                left, rows.ctypes.data, nothing, 0, result + task * vectors * pitch, rows.shape[0] * n,
                itemsize, vectors, rhs, element, row, pitch, 1,
            )  # fmt: skip
            rows[0, 0, 0] = zeros[0]  # keeps both arrays alive until here: only their addresses were used

    name = f"restrict_{n}_{vectors}_{rhs}_{8 * itemsize}"
    return compiled(restrict, name, _signature(itemsize), _tasks)


@cache
def _prolongation(n: int, vectors: int, rhs: int, itemsize: int) -> Callable[..., None]:
    """``out += V coarse`` of every aggregate and chirality, one product a site."""
    element = 2 * itemsize
    pitch, row = rhs * element, vectors * element

    def prolong(
        low: int,
        high: int,
        start: int,
        aggregate_bytes: int,
        chirality_bytes: int,
        sites: NDArray,
        coarse: NDArray,
        out: NDArray,
    ) -> None:
        count = sites.shape[1]
        source, field = coarse.ctypes.data, out.ctypes.data
        for task in prange(low, high):
            aggregate, chirality = task // 2, task % 2
            left = start + aggregate * aggregate_bytes + chirality * chirality_bytes
            right = source + task * vectors * pitch
            for place in range(count):
                result = field + (2 * sites[aggregate, place] + chirality) * n * pitch
                matrix_product(
                    left + place * n * row, right, result, pitch, result, vectors,
                    itemsize, n, rhs, row, element, pitch, 0,
                )  # fmt: skip

    name = f"prolong_{n}_{vectors}_{rhs}_{8 * itemsize}"
    return compiled(prolong, name, _signature(itemsize), _tasks)


def _tasks(start: int, aggregate_bytes: int, chirality_bytes: int, sites: NDArray, *fields: NDArray) -> int:
    return 2 * len(sites)


def _signature(itemsize: int) -> types.FunctionType:
    real = f"f{itemsize}"
    return types.void(
        *[types.int64] * 3,
        array_type("i4", 2),
        array_type(real, 3),
        array_type(real, 3, writable=True),
    )

"""BLAS products over slabs of rows that stay in the cache: no copy of the basis is made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.operands import rows_of

SLAB_BYTES = 1 << 20
"""Of the basis: half of a core's second-level cache."""

SINGLE_ROWS = 512
"""Rows whose products are summed in single precision before they are added up in double."""


def project(V: NDArray, x: NDArray) -> NDArray[np.complex128]:
    rows, block = rows_of(V), rows_of(x)
    sums = np.zeros((V.shape[-1], x.shape[-1]), np.complex128)
    single = rows.dtype == block.dtype == np.complex64
    for slab in _slabs(rows, SINGLE_ROWS if single else None):
        sums += rows[slab].T @ block[slab].conj()  # the narrower factor is the one to conjugate: a copy
    return sums.conj()


def add_combination(out: NDArray, V: NDArray, C: NDArray) -> None:
    rows, block = rows_of(V), rows_of(out)
    coefficients = C.astype(block.dtype)
    for slab in _slabs(rows):
        block[slab] += (rows[slab] @ coefficients).astype(block.dtype, copy=False)


def rotate_in_place(V: NDArray, Q: NDArray) -> None:
    rows = rows_of(V)
    coefficients, columns = Q.astype(V.dtype), Q.shape[1]
    for slab in _slabs(rows):
        rows[slab, :columns] = rows[slab] @ coefficients


def _slabs(rows: NDArray, most: int | None = None) -> Iterator[slice]:
    """Runs of rows of at most `SLAB_BYTES` and at most so many rows."""
    height = max(64, SLAB_BYTES // max(1, rows.shape[1] * rows.itemsize))
    height = min(height, most or height)
    for first in range(0, len(rows), height):
        yield slice(first, first + height)

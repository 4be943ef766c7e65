"""A basis of many vectors, ``[*, k]`` seen as a tall matrix ``[R, k]``: projections, combinations, rotations.

A basis is complex64 or complex128, C-contiguous or leading columns ``V[..., :k]`` of a wider array, so that a
growing basis lives in one allocation. Blocks of right-hand sides ``[*, N]`` are the same kind of array. Small
matrices are complex128. Vectors may be complex64 beside a block in complex128.

Everything is a BLAS product over slabs of rows that stay in the cache: no copy of the basis is made.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.operands import check_coefficients, check_projection, check_rotation

SLAB_BYTES = 1 << 20
"""Of the basis: half of a core's second-level cache."""

SINGLE_ROWS = 512
"""Rows whose products are summed in single precision before they are added up in double."""


def project(V: NDArray, x: NDArray) -> NDArray[np.complex128]:
    """V^H x, complex128 ``[k, N]``; summed in double."""
    rows, block = check_projection(V, x)
    sums = np.zeros((V.shape[-1], x.shape[-1]), np.complex128)
    single = rows.dtype == block.dtype == np.complex64
    for slab in _slabs(rows, SINGLE_ROWS if single else None):
        sums += rows[slab].T @ block[slab].conj()  # the narrower factor is the one to conjugate: a copy
    return sums.conj()


def add_combination(out: NDArray, V: NDArray, C: NDArray) -> None:
    """out += V C in place, with C ``[k, N]``; `out` shares no column with V."""
    rows, block = check_projection(V, out)
    check_coefficients(C, V, out)
    coefficients = C.astype(block.dtype)
    for slab in _slabs(rows):
        block[slab] += (rows[slab] @ coefficients).astype(block.dtype, copy=False)


def rotate_in_place(V: NDArray, Q: NDArray) -> None:
    """V[..., :k'] = V Q with Q ``[k, k']``, k' <= k; the other columns of V keep no meaning."""
    rows = check_rotation(V, Q)
    coefficients, columns = Q.astype(V.dtype), Q.shape[1]
    for slab in _slabs(rows):
        rows[slab, :columns] = rows[slab] @ coefficients


def _slabs(rows: NDArray, most: int | None = None) -> Iterator[slice]:
    """Runs of rows of at most `SLAB_BYTES` and at most so many rows."""
    height = max(64, SLAB_BYTES // max(1, rows.shape[1] * rows.itemsize))
    height = min(height, most or height)
    for first in range(0, len(rows), height):
        yield slice(first, first + height)

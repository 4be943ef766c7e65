"""BLAS products over slabs of rows that stay in the cache.

One operand is conjugated on its way into a slab; where it is that of solutions, spins become columns there,
so that a slab of vectors is read once for four of them: conj(result) = vectors^T conj(solutions). In
complex64 sums of 768 terms are in single, of these in double.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.expressions import put_rows as put_rows
from stages.lqcd.kernels.expressions import put_sources as put_sources
from stages.lqcd.kernels.expressions import slice_add as slice_add
from stages.lqcd.kernels.expressions import slice_norms2 as slice_norms2
from stages.lqcd.kernels.expressions import slice_scale as slice_scale
from stages.lqcd.kernels.expressions import spin_pairs as spin_pairs
from stages.lqcd.kernels.expressions import weighted as weighted
from stages.lqcd.kernels.gamma import COLOURS, SPINS

SLAB_SITES = 256
"""Sites whose products, three colours each, are summed in the field's own precision before they are added up
in double.
"""


def sink_projection(vectors: NDArray, solutions: NDArray, out: NDArray, first: int = 0) -> NDArray:
    times, _, sites, _, k = vectors.shape
    n = solutions.shape[-1]
    spinors = solutions.reshape(2, -1, sites, SPINS, COLOURS, n)
    slab = np.empty((min(sites, SLAB_SITES), COLOURS, SPINS, n), solutions.dtype)
    for t in range(times):
        sums = np.zeros((k, SPINS * n), np.complex128)
        for parity, part in _slabs(sites):
            rows = vectors[t, parity, part].reshape(-1, k)
            conjugate = slab[: len(rows) // COLOURS]
            np.conjugate(spinors[parity, first + t, part].swapaxes(1, 2), out=conjugate)
            sums += rows.T @ conjugate.reshape(len(rows), -1)
        out[t] = sums.reshape(k, SPINS, n).swapaxes(0, 1).conj()
    return out


def slice_gram(left: NDArray, right: NDArray, out: NDArray) -> NDArray:
    out[...] = 0
    for t in range(len(left)):
        for parity, part in _slabs(left.shape[2]):
            conjugate, rows = (field[t, parity, part].reshape(-1, field.shape[-1]) for field in (left, right))
            out[t] += conjugate.conj().T @ rows
    return out


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    *_, sites, colours, k = vectors
    slab = min(sites, SLAB_SITES) * colours * max(k, columns) * dtype.itemsize
    return slab + k * columns * (2 * np.dtype(np.complex128).itemsize + dtype.itemsize)


def _slabs(sites: int) -> Iterator[tuple[int, slice]]:
    """(parity, sites) of the slabs of a slice, one after the other."""
    for parity in (0, 1):
        for first in range(0, sites, SLAB_SITES):
            yield parity, slice(first, first + SLAB_SITES)

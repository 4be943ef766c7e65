"""Matrix products of a slice in double, of copies."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, SPINS


def sink_projection(vectors: Array, solutions: Array, out: Array, first: int = 0) -> Array:
    times, _, sites, _, k = vectors.shape
    n = solutions.shape[-1]
    spinors = solutions.reshape(2, -1, sites, SPINS, COLOURS, n)
    for t in range(times):
        rows = vectors[t].reshape(-1, k).astype(np.complex128)
        by_spin = spinors[:, first + t].transpose(2, 0, 1, 3, 4).reshape(SPINS, -1, n)
        out[t] = rows.conj().T @ by_spin.astype(np.complex128)
    return out


def slice_gram(left: Array, right: Array, out: Array) -> Array:
    for t in range(len(left)):
        conjugate, rows = (
            field[t].reshape(-1, field.shape[-1]).astype(np.complex128) for field in (left, right)
        )
        array_module(left).matmul(conjugate.conj().T, rows, out=out[t])
    return out


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    *_, sites, colours, k = vectors
    rows = 2 * sites * colours * (k + columns)
    return 3 * rows * np.dtype(np.complex128).itemsize

"""Products of vectors and solutions on each time slice: sink projections and Gram matrices.

Vectors ``[time, parity, site, colour, column]``, solutions ``[parity, site, 12, column]`` (component 3 spin +
colour), complex64 or complex128, both of one dtype. Results are complex128.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, SPINS
from stages.lqcd.kernels.slice_operands import check_sink_projection, check_slice_gram


def sink_projection(vectors: Array, solutions: Array, out: Array, first: int = 0) -> Array:
    """out[t, spin, i, j] = sum_{x, colour} conj(vectors[t, x, colour, i]) solutions[x, 3 spin + colour, j].

    vectors: of the slices first, first + 1, ... of the solutions, ``[time, 2, site, 3, k]``; solutions
    ``[2, site, 12, N]``; out complex128 ``[time, 4, k, N]``. Summed in double. Returns `out`; raises
    InputError.
    """
    check_sink_projection(vectors, solutions, out, first)
    times, _, sites, _, k = vectors.shape
    n = solutions.shape[-1]
    spinors = solutions.reshape(2, -1, sites, SPINS, COLOURS, n)
    for t in range(times):
        rows = vectors[t].reshape(-1, k).astype(np.complex128)
        by_spin = spinors[:, first + t].transpose(2, 0, 1, 3, 4).reshape(SPINS, -1, n)
        out[t] = rows.conj().T @ by_spin.astype(np.complex128)
    return out


def slice_gram(left: Array, right: Array, out: Array) -> Array:
    """out[t, i, j] = sum_{x, colour} conj(left[t, x, colour, i]) right[t, x, colour, j].

    left, right ``[time, 2, site, 3, column]``; out complex128 ``[time, left column, right column]``. Summed
    in double. Returns `out`; raises InputError.
    """
    check_slice_gram(left, right, out)
    for t in range(len(left)):
        conjugate, rows = (
            field[t].reshape(-1, field.shape[-1]).astype(np.complex128) for field in (left, right)
        )
        array_module(left).matmul(conjugate.conj().T, rows, out=out[t])
    return out


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    """Most bytes that either product of vectors of this shape with so many columns (spins and right-hand
    sides) allocates beside its operands.
    """
    *_, sites, colours, k = vectors
    rows = 2 * sites * colours * (k + columns)
    return 3 * rows * np.dtype(np.complex128).itemsize

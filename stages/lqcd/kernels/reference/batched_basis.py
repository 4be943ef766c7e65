"""Bases of many independent systems of equal size, ``[S, n, k]``: as `basis`, for each of S by itself.

A basis is complex64 or complex128, C-contiguous or leading columns ``V[..., :k]`` of a wider array; blocks
``[S, n, N]`` are of the same dtype. Small matrices are complex128 in the library of the basis.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_batch, check_batch_matrices


def project(V: Array, x: Array) -> Array:
    """V_s^H x_s, complex128 ``[S, k, N]``; summed in double."""
    check_batch(V, x)
    return V.astype(np.complex128).conj().swapaxes(1, 2) @ x.astype(np.complex128)


def add_combination(out: Array, V: Array, C: Array) -> None:
    """out_s += V_s C_s in place, with C ``[S, k, N]``; `out` shares no column with V."""
    check_batch(V, out)
    check_batch_matrices(C, V, out.shape[2])
    out += (V @ array_module(V).asarray(C).astype(V.dtype)).astype(V.dtype)


def rotate_in_place(V: Array, Q: Array) -> None:
    """V_s[:, :k'] = V_s Q_s with Q ``[S, k, k']``, k' <= k; the other columns of V keep no meaning."""
    check_batch(V, V)
    check_batch_matrices(Q, V, min(Q.shape[-1], V.shape[2]))
    V[..., : Q.shape[2]] = V @ array_module(V).asarray(Q).astype(V.dtype)

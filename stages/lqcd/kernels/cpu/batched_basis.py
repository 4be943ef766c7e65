"""Bases of many independent systems of equal size, ``[S, n, k]``: as `basis`, for each of S by itself.

A basis is complex64 or complex128, C-contiguous or leading columns ``V[..., :k]`` of a wider array; blocks
``[S, n, N]`` are of the same dtype. Small matrices are complex128.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import basis
from stages.lqcd.kernels.operands import check_batch, check_batch_matrices


def project(V: NDArray, x: NDArray) -> NDArray[np.complex128]:
    """V_s^H x_s, complex128 ``[S, k, N]``; summed in double."""
    check_batch(V, x)
    return np.stack([basis.project(one, block) for one, block in zip(V, x, strict=True)])


def add_combination(out: NDArray, V: NDArray, C: NDArray) -> None:
    """out_s += V_s C_s in place, with C ``[S, k, N]``; `out` shares no column with V."""
    check_batch(V, out)
    check_batch_matrices(C, V, out.shape[2])
    for block, one, coefficients in zip(out, V, C, strict=True):
        basis.add_combination(block, one, coefficients)


def rotate_in_place(V: NDArray, Q: NDArray) -> None:
    """V_s[:, :k'] = V_s Q_s with Q ``[S, k, k']``, k' <= k; the other columns of V keep no meaning."""
    check_batch(V, V)
    check_batch_matrices(Q, V, min(Q.shape[-1], V.shape[2]))
    for one, rotation in zip(V, Q, strict=True):
        basis.rotate_in_place(one, rotation)

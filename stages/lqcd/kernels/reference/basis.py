"""A basis of many vectors, ``[*, k]`` seen as a tall matrix ``[R, k]``: projections, combinations, rotations.

A basis is complex64 or complex128, C-contiguous or leading columns ``V[..., :k]`` of a wider array, so that a
growing basis lives in one allocation. Blocks of right-hand sides ``[*, N]`` are the same kind of array. Small
matrices are complex128 in the library of the basis. Vectors may be complex64 beside a block in complex128.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_coefficients, check_projection, check_rotation


def project(V: Array, x: Array) -> Array:
    """V^H x, complex128 ``[k, N]``; summed in double."""
    rows, block = check_projection(V, x)
    return rows.astype(np.complex128).conj().T @ block.astype(np.complex128)


def add_combination(out: Array, V: Array, C: Array) -> None:
    """out += V C in place, with C ``[k, N]``; `out` shares no column with V."""
    rows, block = check_projection(V, out)
    check_coefficients(C, V, out)
    block += (rows @ array_module(V).asarray(C).astype(block.dtype)).astype(block.dtype)


def rotate_in_place(V: Array, Q: Array) -> None:
    """V[..., :k'] = V Q with Q ``[k, k']``, k' <= k; the other columns of V keep no meaning."""
    rows = check_rotation(V, Q)
    rows[:, : Q.shape[1]] = rows @ array_module(V).asarray(Q).astype(V.dtype)

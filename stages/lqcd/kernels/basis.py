"""A basis of many vectors, ``[*, k]`` seen as a tall matrix ``[R, k]``: projections, combinations, rotations.

A basis is complex64 or complex128, C-contiguous or leading columns ``V[..., :k]`` of a wider array, so that a
growing basis lives in one allocation. Blocks of right-hand sides ``[*, N]`` are the same kind of array. Small
matrices are complex128, where the basis is or on the host. Vectors may be complex64 beside a block in
complex128.
"""

from __future__ import annotations

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_coefficients


def project(V: Array, x: Array) -> Array:
    """V^H x, complex128 ``[k, N]``; summed in double."""
    _check_rows(V, x)
    return kernel("basis.project", type(V))(V, x)


def add_combination(out: Array, V: Array, C: Array) -> None:
    """``out += V C`` in place, with C ``[k, N]``; `out` shares no column with V."""
    _check_rows(V, out)
    check_coefficients(C, V, out)
    kernel("basis.add_combination", type(V))(out, V, C)


def rotate_in_place(V: Array, Q: Array) -> None:
    """V[..., :k'] = V Q with Q ``[k, k']``, k' <= k; the other columns of V keep no meaning."""
    if Q.ndim != 2 or Q.shape[0] != V.shape[-1] or Q.shape[1] > Q.shape[0]:
        raise InputError(
            f"a rotation of {V.shape[-1]} vectors in place has shape ({V.shape[-1]}, at most "
            f"{V.shape[-1]}), got {Q.shape}"
        )
    _check_basis(V)
    kernel("basis.rotate_in_place", type(V))(V, Q)


def _check_rows(V: Array, x: Array) -> None:
    """Raise InputError unless both are bases of as many rows."""
    _check_basis(V)
    _check_basis(x)
    if V.size // V.shape[-1] != x.size // x.shape[-1]:
        raise InputError(f"vectors {V.shape} and block {x.shape} must have the same sites and components")


def _check_basis(V: Array) -> None:
    """Raise InputError unless V ``[*, k]`` is complex, C-contiguous or leading columns of such an array."""
    if V.ndim < 2 or V.dtype not in (np.complex64, np.complex128):
        raise InputError(f"a basis is complex64 or complex128 [*, vectors], got {V.dtype} {V.shape}")
    stride, itemsize = V.strides[-2], V.itemsize
    wanted = [itemsize]
    for axis in range(V.ndim - 2, -1, -1):
        wanted.insert(0, stride)
        stride *= V.shape[axis]
    if V.size and (tuple(wanted) != V.strides or V.strides[-2] < itemsize * V.shape[-1]):
        raise InputError(
            f"a basis must be C-contiguous or leading columns of such an array, got strides {V.strides} of "
            f"{V.dtype} {V.shape}: use ascontiguousarray"
        )

"""Bases of many independent systems of equal size, ``[S, n, k]``: as `basis`, for each of S by itself.

A basis is complex64 or complex128, C-contiguous or columns ``V[..., j:k]`` of a wider array; blocks ``[S, n,
N]`` are of the same dtype. Small matrices are complex128, where the basis is or on the host.
"""

from __future__ import annotations

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel


def project(V: Array, x: Array) -> Array:
    """V_s^H x_s, complex128 ``[S, k, N]``; summed in double."""
    _check_batch(V, x)
    return kernel("batched_basis.project", type(V))(V, x)


def add_combination(out: Array, V: Array, C: Array) -> None:
    """out_s += V_s C_s in place, with C ``[S, k, N]``; `out` shares no column with V."""
    _check_batch(V, out)
    _check_matrices(C, V, out.shape[2])
    kernel("batched_basis.add_combination", type(V))(out, V, C)


def rotate_in_place(V: Array, Q: Array) -> None:
    """V_s[:, :k'] = V_s Q_s with Q ``[S, k, k']``, k' <= k; the other columns of V keep no meaning."""
    _check_batch(V, V)
    _check_matrices(Q, V, min(Q.shape[-1], V.shape[2]))
    kernel("batched_basis.rotate_in_place", type(V))(V, Q)


def rayleigh(block: Array, image: Array) -> tuple[Array, Array]:
    """Rayleigh quotients of x given the image y = A x, and |y - x quotient|^2: float64 ``[S, N]`` each.

    block, image: x and y ``[S, n, N]``; the image becomes y - x quotient.
    """
    _check_batch(block, image)
    return kernel("batched_basis.rayleigh", type(image))(block, image)


def _check_batch(V: Array, x: Array) -> None:
    """Raise InputError unless V ``[S, n, k]``, x ``[S, n, N]`` are columns of contiguous arrays."""
    for array in (V, x):
        if array.ndim != 3 or array.dtype not in (np.complex64, np.complex128):
            raise InputError(
                f"a batch of bases is complex64 or complex128 of shape (systems, rows, columns), "
                f"got {array.dtype} {array.shape}"
            )
        if array.size and not array[0, :1].flags.c_contiguous:
            raise InputError(f"the columns of a batch of bases {array.shape} must lie next to each other")
        if array.size and array.strides[0] != array.shape[1] * array.strides[1]:
            raise InputError(
                f"the systems of a batch of bases {array.shape} must follow each other in memory"
            )
    if V.shape[:2] != x.shape[:2] or V.dtype != x.dtype:
        raise InputError(
            f"a batch of bases, {V.dtype} {V.shape}, and its block, {x.dtype} {x.shape}, must have the same "
            "systems, rows and dtype"
        )


def _check_matrices(C: Array, V: Array, columns: int) -> None:
    """Raise InputError unless C is ``[S, k, columns]`` for V ``[S, n, k]``."""
    shape = (V.shape[0], V.shape[2], columns)
    if C.shape != shape:
        raise InputError(f"matrices for a batch of bases {V.shape} have shape {shape}, got {C.shape}")

"""Batched matrix products in double, of copies."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module


def project(V: Array, x: Array) -> Array:
    return V.astype(np.complex128).conj().swapaxes(1, 2) @ x.astype(np.complex128)


def add_combination(out: Array, V: Array, C: Array) -> None:
    out += (V @ array_module(V).asarray(C).astype(V.dtype)).astype(V.dtype)


def rotate_in_place(V: Array, Q: Array) -> None:
    V[..., : Q.shape[2]] = V @ array_module(V).asarray(Q).astype(V.dtype)

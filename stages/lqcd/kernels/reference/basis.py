"""Matrix products in double, of copies."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import rows_of


def project(V: Array, x: Array) -> Array:
    rows, block = rows_of(V), rows_of(x)
    return rows.astype(np.complex128).conj().T @ block.astype(np.complex128)


def add_combination(out: Array, V: Array, C: Array) -> None:
    rows, block = rows_of(V), rows_of(out)
    block += (rows @ array_module(V).asarray(C).astype(block.dtype)).astype(block.dtype)


def rotate_in_place(V: Array, Q: Array) -> None:
    rows = rows_of(V)
    rows[:, : Q.shape[1]] = rows @ array_module(V).asarray(Q).astype(V.dtype)

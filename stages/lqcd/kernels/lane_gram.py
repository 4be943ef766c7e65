"""Gram matrices of a few fields and least squares among them, each right-hand side by itself.

A basis is an array ``[K, ..., N]``, C-contiguous, of K fields ``[..., N]``, at most `MOST_FIELDS`, with N up
to 64 on a GPU.
"""

from __future__ import annotations

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks

MOST_FIELDS = 5
"""Whose products a thread of a GPU keeps in registers."""

NOISE = 1e-10
"""A field whose squared sine of the angle to those before it is below this adds nothing but rounding."""


def lane_gram(xs: Array) -> Array:
    """G[j, k] = conj(xs[j]) . xs[k] of each right-hand side, complex128 ``[K, K, N]``; sums in double."""
    check_blocks(xs=xs)
    if xs.ndim < 3 or not 2 <= len(xs) <= MOST_FIELDS:
        raise InputError(
            f"a Gram matrix is one of 2 to {MOST_FIELDS} fields [K, ..., N], got shape {xs.shape}"
        )
    return kernel("lane_gram.lane_gram", type(xs))(xs)


def lane_least_squares(gram: Array) -> Array:
    """Coefficients c of the shortest xs[0] - sum_k c[k] xs[k + 1], from their `lane_gram`.

    Complex128 ``[K - 1, N]``.

    By Cholesky's factors of the fields scaled to norm one; c is zero for fields that vanish or depend on
    those before them (`NOISE`).
    """
    check_array("gram", gram, (len(gram), len(gram), *gram.shape[2:]), np.dtype(complex))
    if gram.ndim != 3 or len(gram) < 2:
        raise InputError(f"a Gram matrix has shape (K, K, right-hand sides), K at least 2, got {gram.shape}")
    return kernel("lane_gram.lane_least_squares", type(gram))(gram)

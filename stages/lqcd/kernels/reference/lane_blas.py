"""Sums and updates over a basis of fields, each right-hand side with coefficients of its own.

A basis is an array ``[K, ..., N]``, C-contiguous, of K fields ``[..., N]``; coefficients are complex
``[K, N]``. Right-hand sides never mix: block linear algebra, where they do, is `block_blas`.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_lanes


def lane_dots(xs: Array, y: Array) -> Array:
    """conj(xs[k]) . y of each right-hand side, complex128 ``[K, N]``; sums in double."""
    check_lanes(xs, y)
    rows = y.reshape(-1, y.shape[-1]).astype(np.complex128)
    fields = xs.reshape(len(xs), *rows.shape)
    return array_module(y).stack([(field.conj() * rows).sum(axis=0) for field in fields])


def lane_update(y: Array, xs: Array, a: Array, scale: Array | None = None) -> None:
    """y = scale y + sum_k a[k] xs[k] in place, with complex a ``[K, N]`` and scale ``[N]``, one by default.

    Coefficients are rounded to the precision of the fields.
    """
    check_lanes(xs, y, a, scale)
    if scale is not None:
        y *= scale.astype(y.dtype)
    for field, coefficients in zip(xs, a.astype(y.dtype), strict=True):
        y += coefficients * field


def lane_polynomial(y: Array, v: Array, c: Array) -> None:
    """y += sum_k c[k] v[k] and v[0] -= sum_k c[k] v[k + 1] in place: K + 1 fields v, complex c ``[K, N]``.

    With powers v[k] = A^k v[0] that is a step of a polynomial method: v[0] stays the residual of y.
    Coefficients are rounded to the precision of the fields.
    """
    check_lanes(v, y)
    lane_update(y, v[:-1], c)
    lane_update(v[0], v[1:], -c)

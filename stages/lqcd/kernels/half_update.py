"""Sums and updates of spinors in 16 bits, as BiCGstab needs them: a coefficient for each right-hand side.

Fields are `HalfField`s ``[site, 12, N]``; coefficients are complex ``[N]``, rounded to single precision, in
which the arithmetic is. Sums are double. A right-hand side that an update leaves as it is keeps its codes.
Raises InputError for operands that do not fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.half_field import HalfField, check_half_field
from stages.lqcd.kernels.operands import check_array

MOST_FIELDS = {"half_dots": 3, "half_update": 2}
"""Fields beside y that a kernel reads."""


def half_dots(xs: Sequence[HalfField], y: HalfField) -> Array:
    """conj(xs[k]) . y of each right-hand side, complex128 ``[K, N]``, of up to 3 fields."""
    _check_fields("half_dots", xs, y)
    return kernel("half_update.half_dots", type(y.codes))(xs, y)


def half_update(y: HalfField, xs: Sequence[HalfField], a: Array, scale: Array | None = None) -> None:
    """``y = scale y + sum_k a[k] xs[k]`` in place, up to 2 fields; a ``[K, N]``, scale ``[N]`` or one."""
    _check_fields("half_update", xs, y)
    shape = len(xs), y.shape[2]
    if a.shape != shape or (scale is not None and scale.shape != shape[1:]):
        raise InputError(f"there must be coefficients of shape {shape}, got {a.shape}")
    kernel("half_update.half_update", type(y.codes))(y, xs, a, scale)


def half_step(x: Array, p: HalfField, r: HalfField, t: HalfField, a: Array) -> Array:
    """``x += a[0] p + a[1] r``, then ``r -= a[1] t``, in place; returns |r|^2, float64 ``[N]``.

    x: complex64 ``[site, 12, N]``. a ``[2, N]``. The norm is that of r before it is rounded to 16 bits.
    """
    _check_fields("half_update", (p, t), r)
    check_array("x", x, r.shape, np.dtype(np.complex64))
    if a.shape != (2, r.shape[2]):
        raise InputError(f"there must be coefficients of shape {(2, r.shape[2])}, got {a.shape}")
    norms2: Array = kernel("half_update.half_step", type(r.codes))(x, p, r, t, a)
    return norms2


def _check_fields(function: str, xs: Sequence[HalfField], y: HalfField) -> None:
    """Raise InputError unless all are fields in 16 bits like y, and as many as the function takes."""
    check_half_field("y", y, y.shape)
    if not 1 <= len(xs) <= MOST_FIELDS[function]:
        raise InputError(f"{function} takes 1 to {MOST_FIELDS[function]} fields beside y, got {len(xs)}")
    for x in xs:
        check_half_field("x", x, y.shape)

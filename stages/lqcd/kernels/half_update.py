"""Sums and updates of spinors in 16 bits, as solvers need them: a coefficient for each right-hand side.

Fields are `HalfField`s ``[site, 12, N]``; coefficients are complex ``[N]``, rounded to single precision, in
which the arithmetic is. Sums are double, and those of an iteration give its coefficients
(`stages.lqcd.solvers.bicgstab`). A right-hand side that an update leaves as it is keeps its codes.
Raises InputError for operands that do not fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.half_field import HalfField, check_half_field
from stages.lqcd.kernels.operands import check_array

MOST_FIELDS = 2
"""Fields beside y that an update reads."""


def half_dot(x: HalfField, y: HalfField) -> Array:
    """conj(x) . y of each right-hand side, complex128 ``[N]``."""
    _check_fields(y, x)
    return kernel("half_update.half_dot", type(y.codes))(x, y)


def half_update(y: HalfField, xs: Sequence[HalfField], a: Array, scale: Array | None = None) -> None:
    """``y = scale y + sum_k a[k] xs[k]`` in place, up to 2 fields; a ``[K, N]``, scale ``[N]`` or one."""
    if not 1 <= len(xs) <= MOST_FIELDS:
        raise InputError(f"half_update takes 1 to {MOST_FIELDS} fields beside y, got {len(xs)}")
    _check_fields(y, *xs)
    shape = len(xs), y.shape[2]
    if a.shape != shape or (scale is not None and scale.shape != shape[1:]):
        raise InputError(f"there must be coefficients of shape {shape}, got {a.shape}")
    kernel("half_update.half_update", type(y.codes))(y, xs, a, scale)


def half_alpha(shadow: HalfField, v: HalfField, coefficients: BiCGstabCoefficients) -> None:
    """``sv = shadow^H v`` and alpha."""
    _check_fields(v, shadow)
    kernel("half_update.half_alpha", type(v.codes))(shadow, v, coefficients)


def half_omega(t: HalfField, shadow: HalfField, r: HalfField, coefficients: BiCGstabCoefficients) -> None:
    """Coefficient omega, and the next rho and beta."""
    _check_fields(t, shadow, r)
    kernel("half_update.half_omega", type(t.codes))(t, shadow, r, coefficients)


def half_residual(
    y: Array, p: HalfField, r: HalfField, t: HalfField, coefficients: BiCGstabCoefficients
) -> None:
    """``y += alpha p + omega r``, then ``r -= omega t``, in place, y complex64 ``[site, 12, N]``.

    Then |r|^2, that of r before it is rounded to 16 bits, and the coefficients of the next direction.
    """
    _check_fields(r, p, t)
    check_array("y", y, r.shape, np.dtype(np.complex64))
    kernel("half_update.half_residual", type(r.codes))(y, p, r, t, coefficients)


def half_norms(
    x: HalfField, norms2: Array, clover: PackedClover | None = None, out: HalfField | None = None
) -> None:
    """``norms2 = |x|^2`` of each right-hand side, float64 ``[N]``; with matrices C also ``out = C x``.

    clover: of the sites of x, in single precision. out: never x itself.
    """
    _check_fields(x, *([] if out is None else [out]))
    check_array("norms2", norms2, x.shape[2:], np.dtype(float))
    if (clover is None) != (out is None):
        raise InputError("half_norms takes clover matrices and a field for the product, or neither")
    if clover is not None and (clover.sites, clover.dtype) != (x.shape[0], np.complex64):
        raise InputError(
            f"clover matrices must be complex64 on {x.shape[0]} sites, got {clover.dtype} on {clover.sites}"
        )
    kernel("half_update.half_norms", type(x.codes))(x, norms2, clover, out)


def _check_fields(y: HalfField, *xs: HalfField) -> None:
    """Raise InputError unless all are fields in 16 bits like y."""
    check_half_field("y", y, y.shape)
    for x in xs:
        check_half_field("x", x, y.shape)

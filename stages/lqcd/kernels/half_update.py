"""Sums and updates of spinors in 16 bits: a coefficient for each right-hand side, or for each of a basis.

Fields are `HalfField`s ``[site, 12, N]``; coefficients are complex ``[N]``, or ``[K, N]`` for the K fields of
a basis, rounded to single precision, in which the arithmetic is. Sums are double, and those of an iteration
give its coefficients (`stages.lqcd.solvers.bicgstab`). A right-hand side that an update leaves as it is keeps
its codes. Raises InputError for operands that do not fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.kernels.short_numbers import COMPONENTS, HalfField, check_half_field

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


@dataclass(frozen=True)
class HalfBasis:
    """K `HalfField`s: codes uint16 ``[K, site, 12, N, 2]``, scales float32 ``[K, site, N]``."""

    codes: Array
    scales: Array

    @classmethod
    def like(cls, field: Array, count: int) -> HalfBasis:
        """Room for `count` fields as ``[site, 12, N]`` one is, in its library; not filled."""
        sites, _, n = field.shape
        codes = field_like(field, (count, sites, COMPONENTS, n, 2), np.uint16)
        return cls(codes, field_like(field, (count, sites, n), np.float32))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, number: int) -> HalfField:
        return HalfField(self.codes[number], self.scales[number])

    def fields(self, begin: int, end: int) -> HalfBasis:
        """The basis of some of the fields."""
        return HalfBasis(self.codes[begin:end], self.scales[begin:end])


def half_basis_dots(xs: HalfBasis, y: Array) -> Array:
    """conj(xs[k]) . y of each right-hand side, complex128 ``[K, N]``; the basis may be empty."""
    _check_field("y", y)
    _check_basis(xs, y)
    return kernel("half_update.half_basis_dots", type(y))(xs, y)


def half_basis_combine(y: Array, xs: HalfBasis, a: Array, out: HalfField, r: Array) -> Array:
    """``out = w = y + sum_k a[k] xs[k]``; returns conj(w) . r and |w|^2, complex128 ``[2, N]``.

    They are sums of w before it is rounded to 16 bits. y and r may be one field, `out` is none of the basis,
    which may be empty.
    """
    _check_field("y", y)
    _check_basis(xs, y, a)
    check_array("r", r, y.shape, y.dtype)
    check_half_field("out", out, y.shape)
    return kernel("half_update.half_basis_combine", type(y))(y, xs, a, out, r)


def half_basis_update(y: Array, xs: HalfBasis, a: Array) -> Array:
    """``y += sum_k a[k] xs[k]`` in place; returns |y|^2, float64 ``[N]``."""
    _check_field("y", y)
    _check_basis(xs, y, a)
    return kernel("half_update.half_basis_update", type(y))(y, xs, a)


def _check_fields(y: HalfField, *xs: HalfField) -> None:
    """Raise InputError unless all are fields in 16 bits like y."""
    check_half_field("y", y, y.shape)
    for x in xs:
        check_half_field("x", x, y.shape)


def _check_field(name: str, field: Array) -> None:
    """Raise InputError unless this is a field in single precision."""
    if field.ndim != 3 or field.shape[1] != COMPONENTS:
        raise InputError(f"{name} must be a field (sites, 12, right-hand sides), got shape {field.shape}")
    check_array(name, field, field.shape, np.dtype(np.complex64))


def _check_basis(xs: HalfBasis, y: Array, a: Array | None = None) -> None:
    """Raise InputError unless xs has fields like y, and a is complex ``[K, N]``."""
    sites, _, n = y.shape
    check_array("codes", xs.codes, (len(xs), *y.shape, 2), np.dtype(np.uint16))
    check_array("scales", xs.scales, (len(xs), sites, n), np.dtype(np.float32))
    if a is not None and (a.shape != (len(xs), n) or a.dtype.kind != "c"):
        raise InputError(f"coefficients must be complex of shape {(len(xs), n)}, got {a.dtype} {a.shape}")

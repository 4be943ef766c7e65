"""Sums and updates over a basis of spinors in 16 bits, each right-hand side with coefficients of its own.

Fields are complex64 ``[site, 12, N]`` on one parity, of which a basis has K in 16 bits; coefficients are
complex ``[K, N]``, rounded to single precision, in which the arithmetic is. Sums are double. Raises
InputError for operands that do not fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.half_field import COMPONENTS, HalfField, check_half_field
from stages.lqcd.kernels.operands import check_array


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
    return kernel("half_basis.half_basis_dots", type(y))(xs, y)


def half_basis_combine(y: Array, xs: HalfBasis, a: Array, out: HalfField, r: Array) -> Array:
    """``out = w = y + sum_k a[k] xs[k]``; returns conj(w) . r and |w|^2, complex128 ``[2, N]``.

    They are sums of w before it is rounded to 16 bits. y and r may be one field, `out` is none of the basis,
    which may be empty.
    """
    _check_field("y", y)
    _check_basis(xs, y, a)
    check_array("r", r, y.shape, y.dtype)
    check_half_field("out", out, y.shape)
    return kernel("half_basis.half_basis_combine", type(y))(y, xs, a, out, r)


def half_basis_update(y: Array, xs: HalfBasis, a: Array) -> Array:
    """``y += sum_k a[k] xs[k]`` in place; returns |y|^2, float64 ``[N]``."""
    _check_field("y", y)
    _check_basis(xs, y, a)
    return kernel("half_basis.half_basis_update", type(y))(y, xs, a)


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

"""Sums and updates over a basis of fields, each right-hand side with coefficients of its own.

A basis is an array ``[K, ..., N]``, C-contiguous, of K fields ``[..., N]``, N up to 64 on a GPU; coefficients
are complex ``[K, N]``, rounded to the precision of the fields. Right-hand sides never mix: block linear
algebra, where they do, is `block_blas`. Raises InputError for operands that do not fit each other.
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


def lane_dots(xs: Array, y: Array) -> Array:
    """conj(xs[k]) . y of each right-hand side, complex128 ``[K, N]``; sums in double."""
    _check_lanes(xs, y)
    return kernel("lane_blas.lane_dots", type(y))(xs, y)


def lane_update(y: Array, xs: Array, a: Array, scale: Array | None = None) -> None:
    """``y = scale y + sum_k a[k] xs[k]`` in place, a complex ``[K, N]``, scale ``[N]`` or one."""
    _check_lanes(xs, y, a, scale)
    kernel("lane_blas.lane_update", type(y))(y, xs, a, scale)


def lane_polynomial(y: Array, v: Array, c: Array) -> None:
    """``y += sum_k c[k] v[k]`` and ``v[0] -= sum_k c[k] v[k + 1]`` in place.

    With K + 1 fields v and complex c ``[K, N]``.

    With powers v[k] = A^k v[0] that is a step of a polynomial method: v[0] stays the residual of y.
    """
    _check_lanes(v, y)
    _check_lanes(v[:-1], y, c)
    kernel("lane_blas.lane_polynomial", type(y))(y, v, c)


def lane_scale(x: Array, factor: Array, out: Array) -> None:
    """``out = factor x``, with a factor for each right-hand side, ``[N]``; `out` may be `x`."""
    _check_factor(x, factor, out)
    kernel("lane_blas.lane_scale", type(x))(x, factor, out)


def lane_divide(x: Array, divisor: Array, out: Array) -> None:
    """``out = x / divisor``, with a divisor for each right-hand side, ``[N]``; `out` may be `x`."""
    _check_factor(x, divisor, out)
    kernel("lane_blas.lane_divide", type(x))(x, divisor, out)


def lane_add(y: Array, x: Array, factor: Array) -> None:
    """``y += factor x``, with a real factor for each right-hand side, ``[N]``, rounded twice.

    x may be of lower precision.
    """
    check_array("x", x, y.shape, x.dtype)
    if factor.shape != x.shape[-1:]:
        raise InputError(f"there must be {x.shape[-1]} numbers, one a right-hand side, got {factor.shape}")
    kernel("lane_blas.lane_add", type(y))(y, x, factor)


def lane_take(x: Array, lanes: Array) -> Array:
    """The right-hand sides of these numbers, of a field or of coefficients ``[..., N]``: a new one."""
    return kernel("lane_blas.lane_take", type(x))(x, lanes)


def lane_put_add(y: Array, x: Array, lanes: Array, factor: Array | None = None) -> None:
    """``y[..., lanes] += factor x`` in place, with x ``[..., number of lanes]``, perhaps of lower precision.

    factor: real, for each of these right-hand sides, one unless given; rounded twice.
    """
    kernel("lane_blas.lane_put_add", type(y))(y, x, lanes, factor)


def lane_clear(y: Array, lanes: Array) -> None:
    """``y[..., lanes] = 0`` in place."""
    kernel("lane_blas.lane_clear", type(y))(y, lanes)


def lane_choose(y: Array, x: Array, chosen: Array) -> None:
    """``y = x`` in the right-hand sides where bool `chosen` ``[N]``, on the host or not, says so."""
    check_array("x", x, y.shape, y.dtype)
    kernel("lane_blas.lane_choose", type(y))(y, x, chosen)


def lane_gram(xs: Array) -> Array:
    """G[j, k] = conj(xs[j]) . xs[k] of each right-hand side, complex128 ``[K, K, N]``; sums in double."""
    check_blocks(xs=xs)
    if xs.ndim < 3 or not 2 <= len(xs) <= MOST_FIELDS:
        raise InputError(
            f"a Gram matrix is one of 2 to {MOST_FIELDS} fields [K, ..., N], got shape {xs.shape}"
        )
    return kernel("lane_blas.lane_gram", type(xs))(xs)


def lane_least_squares(gram: Array) -> Array:
    """Coefficients c of the shortest xs[0] - sum_k c[k] xs[k + 1], from their `lane_gram`.

    Complex128 ``[K - 1, N]``.

    By Cholesky's factors of the fields scaled to norm one; c is zero for fields that vanish or depend on
    those before them (`NOISE`).
    """
    check_array("gram", gram, (len(gram), len(gram), *gram.shape[2:]), np.dtype(complex))
    if gram.ndim != 3 or len(gram) < 2:
        raise InputError(f"a Gram matrix has shape (K, K, right-hand sides), K at least 2, got {gram.shape}")
    return kernel("lane_blas.lane_least_squares", type(gram))(gram)


def _check_factor(x: Array, factor: Array, out: Array) -> None:
    """Raise InputError unless x and out are alike and factor is ``[N]``."""
    check_array("x", x, out.shape, out.dtype)
    check_array("out", out, x.shape, x.dtype)
    if factor.shape != x.shape[-1:]:
        raise InputError(f"there must be {x.shape[-1]} numbers, one a right-hand side, got {factor.shape}")


def _check_lanes(xs: Array, y: Array, a: Array | None = None, scale: Array | None = None) -> None:
    """Raise InputError unless xs is a basis ``[K, ..., N]`` of fields like y.

    With a complex ``[K, N]`` and scale ``[N]``.
    """
    check_blocks(y=y)
    if xs.ndim != y.ndim + 1 or not len(xs):
        raise InputError(f"a basis of fields {y.shape} must have shape (K, ...) with K > 0, got {xs.shape}")
    check_array("the basis", xs, (len(xs), *y.shape), y.dtype)
    if a is not None and (a.shape != (len(xs), y.shape[-1]) or a.dtype.kind != "c"):
        raise InputError(
            f"coefficients must be complex of shape {(len(xs), y.shape[-1])}, got {a.dtype} {a.shape}"
        )
    if scale is not None and scale.shape != y.shape[-1:]:
        raise InputError(f"scale must have shape {y.shape[-1:]}, got {scale.shape}")

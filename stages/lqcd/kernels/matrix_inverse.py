"""Inverses of the matrices of all sites, complex ``[..., n, n]``; where a matrix is singular, NaN.

On a host a singular matrix makes all of them NaN.
"""

from __future__ import annotations

from typing import Any

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel


def inverse(matrices: Array) -> Array:
    """M^-1, a new array. Raises InputError for what is no array of square matrices."""
    _check_square(matrices)
    return kernel("matrix_inverse.inverse", type(matrices))(matrices)


def is_finite(matrices: Array) -> Any:
    """True if no element is infinite or NaN: an answer for which `bool` waits where it is no bool already."""
    return kernel("matrix_inverse.is_finite", type(matrices))(matrices)


def _check_square(matrices: Array) -> None:
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2] or matrices.dtype.kind != "c":
        raise InputError(
            f"inverses are of complex matrices [..., n, n], got {matrices.dtype} {matrices.shape}"
        )

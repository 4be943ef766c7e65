"""Through complex64, one field at a time: 16 bits gain a processor little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.cpu.lane_blas import lane_dots, lane_update
from stages.lqcd.kernels.cpu.short_numbers import put_columns
from stages.lqcd.kernels.dispatch import kernel
from stages.lqcd.kernels.half_update import HalfBasis
from stages.lqcd.kernels.short_numbers import HalfField, put, whole


def half_dot(x: HalfField, y: HalfField) -> NDArray:
    return lane_dots(whole(x)[None], whole(y))[0]


def half_update(y: HalfField, xs: Sequence[HalfField], a: NDArray, scale: NDArray | None = None) -> None:
    values = whole(y)
    lane_update(values, np.stack([whole(x) for x in xs]), a, scale)
    put_columns(y, values, (a != 0).any(axis=0) | (False if scale is None else scale != 1))


def half_alpha(shadow: HalfField, v: HalfField, coefficients: BiCGstabCoefficients) -> None:
    coefficients.give_alpha(half_dot(shadow, v))


def half_omega(t: HalfField, shadow: HalfField, r: HalfField, coefficients: BiCGstabCoefficients) -> None:
    product = whole(t)
    t2, st, rt = lane_dots(np.stack([product, whole(shadow), whole(r)]), product)
    coefficients.give_omega(t2.real, st, rt.conj())


def half_residual(
    y: NDArray, p: HalfField, r: HalfField, t: HalfField, coefficients: BiCGstabCoefficients
) -> None:
    values, a = whole(r), coefficients.number("alpha", 2)
    lane_update(y, np.stack([whole(p), values]), a)
    lane_update(values, whole(t)[None], -a[1:])
    put_columns(r, values, a[1] != 0)
    coefficients.give_direction(lane_dots(values[None], values)[0].real)


def half_norms(x: HalfField, norms2: NDArray, clover: PackedClover | None, out: HalfField | None) -> None:
    values = whole(x)
    norms2[...] = lane_dots(values[None], values)[0].real
    if clover is not None and out is not None:
        put(out, kernel("clover.multiply", type(clover))(clover, values, values))


def half_basis_dots(xs: HalfBasis, y: NDArray) -> NDArray[np.complex128]:
    sums = np.empty((len(xs), y.shape[-1]), np.complex128)
    for k in range(len(xs)):
        sums[k] = lane_dots(whole(xs[k])[None], y)[0]
    return sums


def half_basis_combine(
    y: NDArray, xs: HalfBasis, a: NDArray, out: HalfField, r: NDArray
) -> NDArray[np.complex128]:
    w = y.copy()
    _add(w, xs, a)
    put(out, w)
    return np.concatenate([lane_dots(w[None], field) for field in (r, w)])


def half_basis_update(y: NDArray, xs: HalfBasis, a: NDArray) -> NDArray[np.float64]:
    _add(y, xs, a)
    return lane_dots(y[None], y)[0].real


def _add(y: NDArray, xs: HalfBasis, a: NDArray) -> None:
    for k in range(len(xs)):
        lane_update(y, whole(xs[k])[None], a[k : k + 1])

"""Compiled by Numba, one site or matrix after another in a thread; stout smearing in NumPy over all links.

There exp(iQ) = f0 + f1 Q + f2 Q^2 by equations 15 to 34 of the source, with f from the invariants c0 = det Q
and c1 = tr Q^2 / 2 by way of the eigenvalues 2 u, -u + w, -u - w of Q for c0 >= 0; f_j(-c0) = (-1)^j
f_j(c0)^*.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import su3
from stages.lqcd.kernels.cpu.compiled import array_type, compiled, inlined
from stages.lqcd.kernels.directions import staple_tables
from stages.lqcd.kernels.smearing import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: NDArray, field: NDArray, links_nu: NDArray, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    for parity in (0, 1):
        own, opposite = links_nu[parity], links_nu[1 - parity]
        tables = staple_tables(lattice, parity, mu, nu)
        _staple_kernel(out.dtype)(out[parity], field[1 - parity], own, opposite, *tables, coefficient)


def weighted_sum(a: float, x: NDArray, b: float, y: NDArray, out: NDArray) -> None:
    reals = (field.reshape(-1).view(x.real.dtype) for field in (out, x, y))
    _weighted_sum(x.real.dtype)(*reals, a, b)


@cache
def _weighted_sum(dtype: np.dtype) -> Callable[..., None]:
    def weighted_sum(low: int, high: int, out: NDArray, x: NDArray, y: NDArray, a: float, b: float) -> None:
        for i in prange(low, high):
            out[i] = a * x[i] + b * y[i]

    field = array_type(dtype, 1)
    signature = types.void(array_type(dtype, 1, writable=True), field, field, types.float64, types.float64)
    return compiled(weighted_sum, f"weighted_sum_{dtype.name}", signature, lambda out, *others: len(out))


@cache
def _staple_kernel(dtype: np.dtype) -> Callable[..., None]:
    """Both staples of every site of a parity; f and `there` are fields on the other parity."""

    def staple(
        low: int,
        high: int,
        out: NDArray,
        f: NDArray,
        own: NDArray,
        opposite: NDArray,
        up: NDArray,
        side: NDArray,
        down: NDArray,
        corner: NDArray,
        coefficient: float,
    ) -> None:
        for x in prange(low, high):
            above, beside, below, beyond = up[x], side[x], down[x], corner[x]
            for i in range(3):
                u0, u1, u2 = own[x, i, 0], own[x, i, 1], own[x, i, 2]
                a0 = u0 * f[above, 0, 0] + u1 * f[above, 1, 0] + u2 * f[above, 2, 0]
                a1 = u0 * f[above, 0, 1] + u1 * f[above, 1, 1] + u2 * f[above, 2, 1]
                a2 = u0 * f[above, 0, 2] + u1 * f[above, 1, 2] + u2 * f[above, 2, 2]
                d0 = np.conj(opposite[below, 0, i])
                d1 = np.conj(opposite[below, 1, i])
                d2 = np.conj(opposite[below, 2, i])
                b0 = d0 * f[below, 0, 0] + d1 * f[below, 1, 0] + d2 * f[below, 2, 0]
                b1 = d0 * f[below, 0, 1] + d1 * f[below, 1, 1] + d2 * f[below, 2, 1]
                b2 = d0 * f[below, 0, 2] + d1 * f[below, 1, 2] + d2 * f[below, 2, 2]
                for k in range(3):
                    upper = (
                        a0 * np.conj(opposite[beside, k, 0])
                        + a1 * np.conj(opposite[beside, k, 1])
                        + a2 * np.conj(opposite[beside, k, 2])
                    )
                    lower = b0 * own[beyond, 0, k] + b1 * own[beyond, 1, k] + b2 * own[beyond, 2, k]
                    out[x, i, k] += coefficient * (upper + lower)

    matrices, table = array_type(dtype, 3), array_type(np.int32, 1)
    signature = types.void(
        array_type(dtype, 3, writable=True), matrices, matrices, matrices, *[table] * 4, types.float64
    )
    return compiled(staple, f"staple_{dtype.name}", signature, lambda out, *others: len(out))


def smeared_links(staples: NDArray, links: NDArray, out: NDArray) -> None:
    generator = _traceless_antihermitian(staples @ _dagger(links))
    out[...] = _exponential(generator) @ links


def _traceless_antihermitian(matrices: NDArray) -> NDArray:
    """(M - M^dag)/2 without its trace."""
    parts = (matrices - _dagger(matrices)) / 2
    trace = np.trace(parts, axis1=-2, axis2=-1)
    return parts - trace[..., None, None] / 3 * np.eye(3)


def _exponential(generator: NDArray) -> NDArray:
    """exp(A) of traceless anti-Hermitian A = iQ ``[..., 3, 3]``."""
    q = -1j * generator
    square = q @ q
    c0 = np.trace(square @ q, axis1=-2, axis2=-1).real / 3
    c1 = np.trace(square, axis1=-2, axis2=-1).real / 2
    zero = c1 < 1e-30  # there exp(A) = 1 to rounding; avoids 0 / 0
    c1 = np.where(zero, 1.0, c1)
    theta = np.arccos(np.minimum(1.0, np.abs(c0) / (2 * (c1 / 3) ** 1.5)))
    u, w = np.sqrt(c1 / 3) * np.cos(theta / 3), np.sqrt(c1) * np.sin(theta / 3)
    f = _coefficients(u, w)
    sign = np.where(c0 < 0, -1.0, 1.0)
    f0, f1, f2 = (np.where(c0 < 0, sign**j * value.conj(), value) for j, value in enumerate(f))
    f0, f1, f2 = (
        np.where(zero, limit, value)[..., None, None]
        for limit, value in zip((1, 1j, -0.5), (f0, f1, f2), strict=True)
    )
    return f0 * np.eye(3) + f1 * q + f2 * square


def _coefficients(u: NDArray, w: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """f0, f1, f2 for c0 >= 0: equations 29 to 33."""
    double, single = np.exp(2j * u), np.exp(-1j * u)
    cosine, xi0 = np.cos(w), np.sinc(w / np.pi)
    h0 = (u**2 - w**2) * double + single * (8 * u**2 * cosine + 2j * u * (3 * u**2 + w**2) * xi0)
    h1 = 2 * u * double - single * (2 * u * cosine - 1j * (3 * u**2 - w**2) * xi0)
    h2 = double - single * (cosine + 3j * u * xi0)
    denominator = 9 * u**2 - w**2
    return h0 / denominator, h1 / denominator, h2 / denominator


def _dagger(matrices: NDArray) -> NDArray:
    return matrices.conj().swapaxes(-1, -2)


def special_unitary(links: NDArray, out: NDArray) -> float:
    changes = np.empty(len(links))
    _special_unitary()(links.reshape(-1, 9), out.reshape(-1, 9), changes)
    return math.sqrt(changes.max())


def unitary(matrices: NDArray, out: NDArray) -> NDArray[np.bool_]:
    singular = np.empty(len(matrices), bool)
    _unitary()(matrices.reshape(-1, 9), out.reshape(-1, 9), singular)
    return singular


def by_singular_values(matrices: NDArray, chosen: NDArray[np.bool_]) -> int:
    places = np.flatnonzero(chosen)
    if len(places):
        left, _, right = np.linalg.svd(matrices[places])
        matrices[places] = left @ right
    return len(places)


def without_phase(matrices: NDArray) -> None:
    determinant = (matrices[..., 0, :] * np.cross(matrices[..., 1, :], matrices[..., 2, :])).sum(-1)
    matrices *= np.exp(-1j / 3 * np.angle(determinant))[..., None, None]


@inlined
def _linear(f0, f1, m):
    """f0 + f1 m."""
    a, b, c = m
    return (
        (f0 + f1 * a[0], f1 * a[1], f1 * a[2]),
        (f1 * b[0], f0 + f1 * b[1], f1 * b[2]),
        (f1 * c[0], f1 * c[1], f0 + f1 * c[2]),
    )


@inlined
def _overlap(a, b):
    """Re sum_ij a_ij b_ij^*."""
    total = 0.0
    for row in range(3):
        for column in range(3):
            total += a[row][column].real * b[row][column].real + a[row][column].imag * b[row][column].imag
    return total


@inlined
def _eigenvalues(b):
    """Eigenvalues of 1 + B, B Hermitian and traceless: 1 + 2 p cos(phi + 2 pi k / 3)."""
    p = math.sqrt(_overlap(b, b) / 6)
    cubic = _overlap(su3.times(b, b), b) / (6 * p * p * p if p > 0 else 1.0)
    phi, third = math.acos(max(-1.0, min(1.0, cubic))) / 3, 2 * math.pi / 3
    return (
        1 + 2 * p * math.cos(phi),
        1 + 2 * p * math.cos(phi + third),
        1 + 2 * p * math.cos(phi + 2 * third),
    )


@inlined
def _polar(v):
    """(W, whether it cannot be trusted); formulas: arXiv:1004.0342, appendix C."""
    scale = math.sqrt(_overlap(v, v) / 3)
    unit = _linear(0.0, 1 / scale if scale > 0 else 1.0, v)
    q = su3.times(su3.dagger(unit), unit)
    e0, e1, e2 = _eigenvalues(_linear(-1.0, 1.0, q))
    a = math.sqrt(max(e0, SMALLEST_DETERMINANT))
    b = math.sqrt(max(e1, SMALLEST_DETERMINANT))
    c = math.sqrt(max(e2, SMALLEST_DETERMINANT))
    s, t, d = a + b + c, a * b + b * c + c * a, a * b * c
    denominator = d * (s * t - d)
    f0 = (s * t * t - d * (s * s + t)) / denominator
    f1 = (2 * s * t - d - s * s * s) / denominator
    root = su3.plus(_linear(f0, f1, q), _linear(0.0, s / denominator, su3.times(q, q)))
    w = su3.times(unit, root)
    defect = _linear(1.0, -1.0, su3.times(su3.dagger(w), w))
    trusted = _overlap(defect, defect) < LARGEST_UNITARITY_ERROR**2 and e0 * e1 * e2 >= SMALLEST_DETERMINANT
    return su3.plus(w, _linear(0.0, 0.5, su3.times(w, defect))), not trusted


@cache
def _special_unitary() -> Callable[..., None]:
    def special_unitary(low, high, links, out, changes):
        for n in prange(low, high):
            link = su3.load(links, n)
            projected = su3.in_su3(link[0], link[1])
            change = 0.0
            for row in range(3):
                for column in range(3):
                    difference = projected[row][column] - link[row][column]
                    square = difference.real * difference.real + difference.imag * difference.imag
                    if square > change or square != square:  # a NaN is larger than all and stays
                        change = square
            changes[n] = change
            su3.store(out, n, projected)

    writable = array_type(complex, 2, writable=True)
    signature = types.void(array_type(complex, 2), writable, array_type(float, 1, writable=True))
    return compiled(special_unitary, "special_unitary", signature, lambda links, *others: len(links))


@cache
def _unitary() -> Callable[..., None]:
    def unitary(low, high, matrices, out, singular):
        for n in prange(low, high):
            v = su3.load(matrices, n)
            w, lost = _polar(v)
            singular[n] = lost
            su3.store(out, n, v if lost else w)

    writable = array_type(complex, 2, writable=True)
    signature = types.void(array_type(complex, 2), writable, array_type(bool, 1, writable=True))
    return compiled(unitary, "unitary", signature, lambda matrices, *others: len(matrices))

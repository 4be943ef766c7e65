"""Compiled by Numba, one matrix after another in a thread."""

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
from stages.lqcd.kernels.projection import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT


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
    """(W, whether it cannot be trusted); formulas: `stages.lqcd.kernels.reference.projection`."""
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

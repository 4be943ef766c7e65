"""Projections of 3x3 matrices: to SU(3), against the rounding of files, and to U(3), inside HISQ smearing."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np

from stages.kernels.dispatch import Array, array_module
from stages.lattice.errors import InputError

LARGEST_DEVIATION = 1e-4
"""Links further than this from SU(3) are no gauge configuration; rounding to 32 bits leaves about 1e-7."""

SMALLEST_DETERMINANT = 1e-8
"""Of V^dag V, with V scaled to tr V^dag V = 3: below it the singular values decide."""

LARGEST_UNITARITY_ERROR = 1e-7
"""Of the analytic W before its last Newton step, which squares it; above it the singular values decide."""

MATRICES_AT_ONCE = 4096
"""A block that stays in the processor's cache; it bounds the memory of the intermediate steps too."""

DEVICE_MATRICES_AT_ONCE = 2**20
"""The same for a GPU: enough to fill it."""


class SpecialUnitary(NamedTuple):
    """links ``[..., 3, 3]`` in SU(3) and the largest change of any matrix element on the way there."""

    links: Array
    deviation: float


class Unitary(NamedTuple):
    """matrices ``[..., 3, 3]`` in U(3) and how many of them took the singular-value decomposition."""

    matrices: Array
    fallbacks: int


def to_su3(links: Array) -> SpecialUnitary:
    """Project links to SU(3) by Gram-Schmidt on the rows; the third row is (row 1 x row 2)^*, as in MILC.

    links ``[..., 3, 3]`` complex; raises InputError if one is further than `LARGEST_DEVIATION` from SU(3).
    """
    xp = array_module(links)
    flat = links.reshape(-1, 3, 3)
    result = xp.empty_like(flat)
    with np.errstate(divide="ignore", invalid="ignore"):  # a vanishing row gives NaN, refused below
        for block in _blocks(flat):
            result[block] = _gram_schmidt(flat[block])
    changes = [float(abs(result[block] - flat[block]).max()) for block in _blocks(flat)]
    deviation = float(np.max(changes))
    if not deviation <= LARGEST_DEVIATION:
        raise InputError(
            f"links are {deviation:.2g} away from SU(3), more than the {LARGEST_DEVIATION:g} that rounding "
            "explains: give the thin links of a gauge configuration, undamaged"
        )
    return SpecialUnitary(result.reshape(links.shape), deviation)


def to_u3(v: Array) -> Unitary:
    """The polar factor W = V (V^dag V)^(-1/2) of matrices ``[..., 3, 3]``, complex128, of any determinant.

    Analytic by Cayley-Hamilton (arXiv:1004.0342, appendix C), polished by one Newton step; from the singular
    values, W = A B^dag for V = A S B^dag, where V^dag V is nearly singular or the analytic W is not unitary.
    """
    xp = array_module(v)
    flat = v.reshape(-1, 3, 3)
    matrices = xp.empty(flat.shape, complex)
    fallbacks = 0
    for block in _blocks(flat):
        # components first: products of 3x3 matrices then run over matrices, four times faster than `@`
        w, singular = _analytic(xp.ascontiguousarray(xp.moveaxis(flat[block], 0, -1), dtype=complex))
        matrices[block] = xp.moveaxis(w, -1, 0)
        if singular.any():
            rows = block.start + xp.flatnonzero(singular)
            left, _, right = xp.linalg.svd(flat[rows])
            matrices[rows] = left @ right
            fallbacks += len(rows)
    return Unitary(matrices.reshape(v.shape), fallbacks)


def _blocks(matrices: Array) -> Iterator[slice]:
    size = MATRICES_AT_ONCE if array_module(matrices) is np else DEVICE_MATRICES_AT_ONCE
    return (slice(start, start + size) for start in range(0, len(matrices), size))


def _analytic(v: Array) -> tuple[Array, Array]:
    """(W, where it cannot be trusted ``[n]``) for matrices ``[3, 3, n]``."""
    xp = array_module(v)
    scale = xp.sqrt(_sum_of_squares(v) / 3)
    scaled = v / xp.where(scale > 0, scale, 1)
    root, determinant = _inverse_root(_times(_dagger(scaled), scaled))
    w = _times(scaled, root)
    defect = _identity(xp) - _times(_dagger(w), w)
    inexact = ~(_sum_of_squares(defect) < LARGEST_UNITARITY_ERROR**2)
    return w + 0.5 * _times(w, defect), inexact | (determinant < SMALLEST_DETERMINANT)


def _inverse_root(q: Array) -> tuple[Array, Array]:
    """Q^(-1/2) = f0 + f1 Q + f2 Q^2 and det Q for Hermitian Q >= 0 of trace 3; no root where det is near 0.

    u, v, w: the elementary symmetric functions of the square roots of the eigenvalues.
    """
    xp = array_module(q)
    eigenvalues = _eigenvalues(q - _identity(xp))
    a, b, c = xp.sqrt(xp.maximum(eigenvalues, SMALLEST_DETERMINANT))
    u, v, w = a + b + c, a * b + b * c + c * a, a * b * c
    denominator = w * (u * v - w)
    f0 = (u * v * v - w * (u * u + v)) / denominator
    f1 = (2 * u * v - w - u**3) / denominator
    f2 = u / denominator
    return f0 * _identity(xp) + f1 * q + f2 * _times(q, q), eigenvalues.prod(axis=0)


def _eigenvalues(b: Array) -> Array:
    """Eigenvalues ``[3, n]`` of 1 + B with B Hermitian and traceless: 1 + 2 p cos(phi + 2 pi k / 3), where
    p^2 = tr B^2 / 6 and cos(3 phi) = tr B^3 / (6 p^3).
    """
    xp = array_module(b)
    p = xp.sqrt(_sum_of_squares(b) / 6)
    cubic = (_times(b, b) * b.swapaxes(0, 1)).sum((0, 1)).real
    phi = xp.arccos(xp.clip(cubic / xp.where(p > 0, 6 * p**3, 1), -1, 1)) / 3
    return xp.stack([1 + 2 * p * xp.cos(phi + 2 * xp.pi * k / 3) for k in range(3)])


def _identity(xp: ModuleType) -> Array:
    return xp.eye(3)[..., None]


def _times(a: Array, b: Array) -> Array:
    return array_module(a).einsum("ijn,jkn->ikn", a, b)


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(0, 1)


def _sum_of_squares(matrices: Array) -> Array:
    return (matrices.real**2 + matrices.imag**2).sum((0, 1))


def _gram_schmidt(matrices: Array) -> Array:
    xp = array_module(matrices)
    first = _normalised(matrices[..., 0, :])
    second = matrices[..., 1, :]
    second = _normalised(second - (first.conj() * second).sum(-1, keepdims=True) * first)
    return xp.stack([first, second, xp.cross(first, second).conj()], axis=-2)


def _normalised(rows: Array) -> Array:
    return rows / array_module(rows).sqrt((rows.real**2 + rows.imag**2).sum(-1, keepdims=True))

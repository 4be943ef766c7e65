"""Gathers, and products of 3x3 matrices over all of them at once."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from stages.lqcd.kernels.directions import staple_tables
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.smearing import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    for parity in (0, 1):
        opposite = 1 - parity
        up, side, down, corner = (
            array_module(out).asarray(table) for table in staple_tables(lattice, parity, mu, nu)
        )
        u, other = links_nu[parity], links_nu[opposite]
        above = u @ field[opposite][up] @ _adjoint(other[side])
        below = _adjoint(other[down]) @ field[opposite][down] @ u[corner]
        out[parity] += coefficient * (above + below)


def weighted_sum(a: float, x: Array, b: float, y: Array, out: Array) -> None:
    out[...] = a * x + b * y


def _adjoint(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)


def special_unitary(links: Array, out: Array) -> float:
    xp = array_module(links)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = _normalised(links[:, 0])
        second = links[:, 1] - (first.conj() * links[:, 1]).sum(-1, keepdims=True) * first
        second = _normalised(second)
        projected = xp.stack([first, second, xp.cross(first, second).conj()], axis=-2)
    change = float(abs(projected - links).max())
    out[...] = projected
    return change


def unitary(matrices: Array, out: Array) -> Array:
    xp = array_module(matrices)
    v = xp.moveaxis(matrices, 0, -1).copy()  # products of 3x3 matrices run over matrices
    scale = xp.sqrt(_sum_of_squares(v) / 3)
    scaled = v / xp.where(scale > 0, scale, 1)
    root, determinant = _inverse_root(_times(_dagger(scaled), scaled))
    w = _times(scaled, root)
    defect = _identity(xp) - _times(_dagger(w), w)
    inexact = ~(_sum_of_squares(defect) < LARGEST_UNITARITY_ERROR**2)
    singular = inexact | (determinant < SMALLEST_DETERMINANT)
    out[...] = xp.moveaxis(xp.where(singular, v, w + 0.5 * _times(w, defect)), -1, 0)
    return singular


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
    """Eigenvalues ``[3, n]`` of 1 + B with B Hermitian and traceless: 1 + 2 p cos(phi + 2 pi k / 3).

    Here p^2 = tr B^2 / 6 and cos(3 phi) = tr B^3 / (6 p^3).
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


def _normalised(rows: Array) -> Array:
    return rows / array_module(rows).sqrt((rows.real**2 + rows.imag**2).sum(-1, keepdims=True))

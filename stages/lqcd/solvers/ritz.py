"""Rayleigh and Ritz: the inverse of B + shift within the span of vectors, by one small diagonalisation.

Ritz vectors q are V Q, or their images; q_i^H q_j = 1 for i = j and else 0. In their span

    guess(b) = sum_q q (theta + shift)^-1 q^H b,   within(x) = sum_q q q^H x,   remainder(x) = x - within(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import basis, block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import converted, zeros_like
from stages.lqcd.kernels.host_lapack import Matrix

WIDTH = 16
"""Vectors that B is applied to at a time."""

DEPENDENT = 1e-13
"""Lowest eigenvalue of the Gram matrix of unit vectors that are dependent in double precision."""


class Ritz(NamedTuple):
    """theta ``[n]`` ascending and Q ``[k, n]``: Q^H V^H V Q = 1 and Q^H V^H B V Q = theta for k vectors V.

    n = k where Q diagonalises B in the whole span of V.
    """

    values: NDArray[np.float64]
    rotation: Matrix


def ritz_pairs(projected: Matrix, gram: Matrix) -> Ritz:
    """Ritz pairs from V^H B V and V^H V ``[k, k]``.

    Raises InputError if the vectors are linearly dependent.
    """
    if not len(gram):
        return Ritz(np.empty(0), np.empty((0, 0), complex))
    norms = np.sqrt(gram.diagonal().real)
    scale = np.outer(norms, norms)
    unit = _hermitian(gram / scale)
    try:
        if not np.linalg.eigvalsh(unit)[0] > DEPENDENT:
            raise np.linalg.LinAlgError
        values, rotation = scipy.linalg.eigh(_hermitian(projected / scale), unit)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise InputError(
            f"the {len(gram)} vectors of the deflation space are linearly dependent or not finite: "
            "compute them again"
        ) from error
    return Ritz(values, rotation / norms[:, None])


class RitzSpace:
    """The span of Ritz vectors q; blocks are ``[*shape, N]``, components q^H x ``[n, N]`` on their device."""

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Ritz values theta of B, float64 ``[n]``, ascending."""
        raise NotImplementedError

    def components(self, x: Array) -> Array:
        """q^H x ``[n, N]``, complex128: sums are taken in double."""
        raise NotImplementedError

    def combination(self, components: Array, like: Array) -> Array:
        """The sum of q times its component, of the shape and dtype of `like`."""
        raise NotImplementedError

    def inverse(self, shift: float) -> NDArray[np.float64]:
        """1 / (theta + shift) ``[n]``. Raises InputError unless all are positive."""
        theta = self.eigenvalues
        if not (theta + shift > 0).all():
            raise InputError(
                f"the operator is not positive on its deflation space: the lowest eigenvalue {theta[0]:.3g} "
                f"and the shift {shift:.3g} add up to {theta[0] + shift:.3g}; take a larger mass"
            )
        return 1 / (theta + shift)

    def guess(self, shift: float, b: Array) -> Array:
        """The x of least error, in the norm of A = B + shift, of A x = b; of the dtype of b.

        Raises InputError unless A is positive in this space, and for another number of rows.
        """
        components = self.components(b)
        components *= to_device_like(self.inverse(shift), b)[:, None]
        return self.combination(components, b)

    def within(self, x: Array) -> Array:
        """The part of x ``[*shape, N]`` in this space."""
        return self.combination(self.components(x), x)

    def remainder(self, x: Array) -> Array:
        """The part of x that is orthogonal to this space."""
        within = self.within(x)
        return block_blas.difference(x, within, within)

    def ritz_residuals(self, B: LinearOperator, like: Array) -> NDArray[np.float64]:
        """Norms |B q - theta q| of the Ritz vectors, float64 ``[n]``; like: n such fields or more."""
        n = len(self.eigenvalues)
        residuals = np.empty(n)
        for first in range(0, n, WIDTH):
            chosen = slice(first, min(first + WIDTH, n))
            units = to_device_like(np.eye(n, dtype=complex)[:, chosen], like)
            q = self.combination(units, converted(like[..., chosen], np.complex128))
            residuals[chosen] = residual_norms(q, B.astype(np.complex128).apply(q))
        return residuals


@dataclass(frozen=True)
class RitzVectors(RitzSpace):
    """V Q for vectors V ``[*shape, k]``, never stored."""

    vectors: Array
    pairs: Ritz

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        return self.pairs.values

    def components(self, x: Array) -> Array:
        return self._rotation.conj().T @ basis.project(self.vectors, x)

    def combination(self, components: Array, like: Array) -> Array:
        out = zeros_like(like)
        basis.add_combination(out, self.vectors, self._rotation @ components)
        return out

    @cached_property
    def _rotation(self) -> Array:
        return to_device_like(self.pairs.rotation, self.vectors)


def residual_norms(v: Array, bv: Array) -> NDArray[np.float64]:
    """|B v - rho v| / |v| with rho = v^H B v / v^H v, of each column; overwrites bv."""
    norms2 = block_blas.norms2(v)
    lane_blas.lane_add(bv, v, -(block_blas.dots(v, bv).real / norms2))
    return np.sqrt(as_numpy(block_blas.norms2(bv) / norms2))


def _hermitian(matrix: Matrix) -> Matrix:
    return (matrix + matrix.conj().T) / 2

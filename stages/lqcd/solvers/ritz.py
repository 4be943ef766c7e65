"""Rayleigh and Ritz: the inverse of B + shift within the span of vectors, by one small diagonalisation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from stages.errors import InputError
from stages.lqcd.kernels import basis
from stages.lqcd.kernels.cholesky import Matrix
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import zeros_like

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


@dataclass(frozen=True)
class RitzVectors:
    """V Q for vectors V ``[*shape, k]``, never stored; blocks are ``[*shape, N]``, sums taken in double."""

    vectors: Array
    pairs: Ritz

    def guess(self, shift: float, b: Array) -> Array:
        """V Q (theta + shift)^-1 Q^H V^H b, of the dtype of b. Raises InputError if theta + shift <= 0."""
        theta = self.pairs.values
        if not (theta + shift > 0).all():
            raise InputError(
                f"the operator is not positive on its deflation space: the lowest eigenvalue {theta[0]:.3g} "
                f"and the shift {shift:.3g} add up to {theta[0] + shift:.3g}; take a larger mass"
            )
        return self._combination(1 / (theta + shift), b)

    def within(self, x: Array) -> Array:
        """V Q Q^H V^H x."""
        return self._combination(np.ones(len(self.pairs.values)), x)

    def _combination(self, weights: NDArray[np.float64], x: Array) -> Array:
        """V Q weights Q^H V^H x."""
        components = self._rotation.conj().T @ basis.project(self.vectors, x)
        components *= to_device_like(weights, x)[:, None]
        out = zeros_like(x)
        basis.add_combination(out, self.vectors, self._rotation @ components)
        return out

    @cached_property
    def _rotation(self) -> Array:
        return to_device_like(self.pairs.rotation, self.vectors)


def _hermitian(matrix: Matrix) -> Matrix:
    return (matrix + matrix.conj().T) / 2

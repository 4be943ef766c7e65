"""Gamma matrices in the DeGrand-Rossi basis, in which every interface gives spinors.

Spinor components are numbered 3 * spin + colour. gamma5 = gamma_x gamma_y gamma_z gamma_t is diagonal: the
first two spins have chirality +1, the others -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPINS, COLOURS = 4, 3
COMPONENTS = SPINS * COLOURS


def _matrix(*rows: tuple[complex, ...]) -> NDArray[np.complex128]:
    matrix = np.array(rows, complex)
    matrix.flags.writeable = False
    return matrix


GAMMA = (
    _matrix((0, 0, 0, 1j), (0, 0, 1j, 0), (0, -1j, 0, 0), (-1j, 0, 0, 0)),
    _matrix((0, 0, 0, -1), (0, 0, 1, 0), (0, 1, 0, 0), (-1, 0, 0, 0)),
    _matrix((0, 0, 1j, 0), (0, 0, 0, -1j), (-1j, 0, 0, 0), (0, 1j, 0, 0)),
    _matrix((0, 0, 1, 0), (0, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, 0)),
)
"""gamma_x, gamma_y, gamma_z, gamma_t: Hermitian, {gamma_mu, gamma_nu} = 2 delta_{mu nu}."""

GAMMA5 = _matrix((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, -1, 0), (0, 0, 0, -1))


def sigma(mu: int, nu: int) -> NDArray[np.complex128]:
    """sigma_{mu nu} = (i/2) [gamma_mu, gamma_nu], 4 x 4."""
    return 0.5j * (GAMMA[mu] @ GAMMA[nu] - GAMMA[nu] @ GAMMA[mu])


def tmlqcd_spinors(field: NDArray, axis: int) -> NDArray:
    """Spinors of tmLQCD in this basis, or the other way round: psi -> -gamma_y psi on an axis of spins.

    Its gamma matrices become these, and its g5 = g_t g_x g_y g_z = diag(1, 1, -1, -1) becomes -gamma5.
    Source: tmLQCD, doc/gamma.tex.
    """
    signs = np.array([1, -1, -1, 1]).reshape(-1, *[1] * (field.ndim - 1 - axis))
    return np.flip(field, axis) * signs

"""Cholesky factor and its inverse of a small Hermitian matrix on the host."""

from __future__ import annotations

from math import isfinite

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Matrix = NDArray[np.complex128]


def cholesky(G: Matrix) -> tuple[Matrix, Matrix, float]:
    """Upper triangular S and S^-1 with G = S^H S, and the condition of G scaled to a unit diagonal.

    The condition is that of Frobenius norms, N^2 times too large at most; infinite where G is not positive.
    G may be empty.
    """
    if not len(G):
        return G, G, 1.0
    with np.errstate(all="ignore"):
        norms = np.sqrt(G.diagonal().real)
        inverses = 1 / norms
        upper, fault = lapack.zpotrf(G * (inverses[:, None] * inverses), lower=0, clean=1)
        if fault:
            return upper, upper, np.inf
        inverse, _ = lapack.ztrtri(upper, lower=0)
        condition = float(np.vdot(upper, upper).real * np.vdot(inverse, inverse).real)
        return upper * norms, inverse * inverses[:, None], condition if isfinite(condition) else np.inf

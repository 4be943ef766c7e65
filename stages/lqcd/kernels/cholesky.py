"""Cholesky factor and its inverse of a small Hermitian matrix on the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Matrix = NDArray[np.complex128]


def cholesky(G: Matrix) -> tuple[Matrix, Matrix, float]:
    """Upper triangular S and S^-1 with G = S^H S, and the condition of G scaled to a unit diagonal.

    The condition is that of Frobenius norms, N^2 times too large at most; infinite where G is not positive.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        norms = np.sqrt(G.diagonal().real)
        scaled = G / norms / norms[:, None]
    upper, fault = lapack.zpotrf(scaled, lower=0, clean=1)
    if fault or not np.isfinite(upper).all():
        return upper, upper, np.inf
    inverse, _ = lapack.ztrtri(upper, lower=0)
    condition = np.vdot(upper, upper).real * np.vdot(inverse, inverse).real
    return upper * norms, inverse / norms[:, None], condition

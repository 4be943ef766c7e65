"""Polynomials that span a Krylov space for s steps at once: monomials, Newton's and Chebyshev's.

    rho_0 = 1,   rho_{i+1}(A) = [(A - theta_i) rho_i(A) - sigma_i rho_{i-1}(A)] / gamma_i

(Z. Bai, D. Hu and L. Reichel, IMA J. Numer. Anal. 14 (1994) 563, for Newton's; W. D. Joubert and
G. F. Carey, Int. J. Comput. Math. 44 (1992) 243, for Chebyshev's.) What A makes of coordinates in
x_i = rho_i(A) x is then tridiagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.solvers.leja import leja_order

Numbers = NDArray[np.float64]

MONOMIAL, NEWTON, CHEBYSHEV = "monomial", "newton", "chebyshev"
BASES = (MONOMIAL, NEWTON, CHEBYSHEV)


@dataclass(frozen=True)
class Polynomials:
    """The coefficients theta, sigma, gamma ``[s]`` of the recurrence."""

    theta: Numbers
    sigma: Numbers
    gamma: Numbers

    def change(self, degree: int) -> Numbers:
        """C with A x_k = sum_j x_j C[j, k] for k < degree; square, of degree + 1, its last column 0."""
        matrix = np.zeros((degree + 1, degree + 1))
        for k in range(degree):
            matrix[k, k], matrix[k + 1, k] = self.theta[k], self.gamma[k]
            if k:
                matrix[k - 1, k] = self.sigma[k]
        return matrix


def polynomials(basis: str, steps: int, ritz: Numbers) -> Polynomials:
    """The first polynomials of a basis, for an operator with these Ritz values, ascending.

    Newton's have Ritz values for zeros, in Leja's order; Chebyshev's are those of the interval from the least
    to the largest. All are scaled so that vectors neither grow nor shrink much. Raises InputError.
    """
    low, high = float(ritz[0]), float(ritz[-1])
    zeros = np.zeros(steps)
    if basis == MONOMIAL:
        return Polynomials(zeros, zeros, np.full(steps, 2.0 ** np.round(np.log2(high))))
    width = high - low if high > low else high
    if basis == NEWTON:
        return Polynomials(leja_order(ritz, steps), zeros, np.full(steps, width / 4))
    if basis == CHEBYSHEV:
        sigma, gamma = np.full(steps, width / 4), np.full(steps, width / 4)
        sigma[0], gamma[0] = 0, width / 2
        return Polynomials(np.full(steps, (high + low) / 2), sigma, gamma)
    raise InputError(f"a basis is one of {', '.join(BASES)}, got {basis!r}")

"""Polynomials that span a Krylov space for s steps at once, and the Ritz values that they are made of.

    rho_0 = 1,   rho_{i+1}(A) = [(A - theta_i) rho_i(A) - sigma_i rho_{i-1}(A)] / gamma_i

are monomials, Newton's polynomials (Z. Bai, D. Hu and L. Reichel, IMA J. Numer. Anal. 14 (1994) 563) or
Chebyshev's (W. D. Joubert and G. F. Carey, Int. J. Comput. Math. 44 (1992) 243). What A makes of coordinates
in x_i = rho_i(A) x is then tridiagonal.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import copied, empty_field, field_like
from stages.lqcd.solvers.leja import leja_order

Numbers = NDArray[np.float64]

MONOMIAL, NEWTON, CHEBYSHEV = "monomial", "newton", "chebyshev"
BASES = (MONOMIAL, NEWTON, CHEBYSHEV)

ABOVE = 1.05
"""|A| is at most this times the largest Ritz value."""
STEPS = 24
"""Of Lanczos: the ends of a spectrum are known to some percent then."""
SEED = 2022
"""Of the vector that it starts from: values are the operator's only, whatever is solved."""

_known: dict[tuple[int, np.dtype], tuple[weakref.ref[LinearOperator], Numbers]] = {}


@dataclass(frozen=True)
class Polynomials:
    """The coefficients theta, sigma, gamma ``[s]`` of the recurrence; norm: |A|."""

    theta: Numbers
    sigma: Numbers
    gamma: Numbers
    norm: float

    def change(self, steps: int) -> Numbers:
        """C with A x_k = sum_j x_j C[j, k] in paired powers (`stages.lqcd.kernels.powers`).

        ``[K, K]``, K = 2 steps + 1; zero in the columns of the last powers of p and of r.
        """
        matrix = np.zeros((2 * steps + 1, 2 * steps + 1))
        for first, degree in ((0, steps), (steps + 1, steps - 1)):
            for i in range(degree):
                k = first + i
                matrix[k, k], matrix[k + 1, k] = self.theta[i], self.gamma[i]
                if i:
                    matrix[k - 1, k] = self.sigma[i]
        return matrix


def polynomials(basis: str, steps: int, ritz: Numbers) -> Polynomials:
    """The first polynomials of one of `BASES`, for an operator with these Ritz values, ascending.

    Newton's have Ritz values for zeros, in Leja's order; Chebyshev's are those of the interval from the least
    to the largest. All are scaled so that vectors neither grow nor shrink much.
    """
    low, high = float(ritz[0]), float(ritz[-1])
    zeros, norm = np.zeros(steps), ABOVE * high
    if basis == MONOMIAL:
        return Polynomials(zeros, zeros, np.full(steps, 2.0 ** np.round(np.log2(high))), norm)
    width = high - low if high > low else high
    sigma, gamma = np.full(steps, width / 4), np.full(steps, width / 4)
    if basis == NEWTON:
        return Polynomials(leja_order(ritz, steps), zeros, gamma, norm)
    sigma[0], gamma[0] = 0, width / 2
    return Polynomials(np.full(steps, (high + low) / 2), sigma, gamma, norm)


def known_ritz_values(A: LinearOperator, dtype: np.dtype) -> Numbers:
    """`ritz_values` of A in a precision from a random vector, found once for an operator while it lives."""
    key = id(A), dtype
    known = _known.get(key)
    if known is None or known[0]() is not A:
        start = empty_field((*A.shape, 1), dtype, A.xp)
        random_numbers.fill_random(start, SEED, 0)
        values = ritz_values(A.astype(dtype), start)
        _known[key] = known = weakref.ref(A, lambda gone: _known.pop(key, None)), values
    return known[1]


def ritz_values(A: LinearOperator, start: Array, steps: int = STEPS) -> Numbers:
    """Ritz values of A, ascending, after so many steps of Lanczos from the first right-hand side of `start`.

    Without reorthogonalisation. Fewer where the Krylov space ends before.
    """
    v = copied(start[..., :1])
    before, w = None, field_like(v)
    diagonal, beside = list[float](), list[float]()
    block_blas.scale(v, 1 / _norm(v), v)
    for _ in range(steps):
        A.apply(v, w)
        diagonal.append(float(as_numpy(block_blas.dots(v, w)).real[0]))
        block_blas.affine(w, 1.0, v, -diagonal[-1])
        if before is not None:
            block_blas.affine(w, 1.0, before, -beside[-1])
        beside.append(_norm(w))
        if not beside[-1] > 1e-6 * max(map(abs, diagonal)):
            break
        block_blas.scale(w, 1 / beside[-1], w)
        before, v, w = v, w, field_like(v)
    off = beside[: len(diagonal) - 1]
    return np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))


def _norm(field: Array) -> float:
    return float(np.sqrt(as_numpy(block_blas.norms2(field))[0]))

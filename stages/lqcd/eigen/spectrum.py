"""Ends and density of a spectrum from a few dozen applications of the operator to a random vector.

Stochastic Lanczos quadrature (Lin, Saad, Yang, SIAM Rev. 58 (2016) 34): nodes and weights of the Lanczos
matrix of a random start give the number of eigenvalues below a point. The largest Ritz value plus its
residual is taken as the upper end (Y. Zhou, R.-C. Li, Linear Algebra Appl. 435 (2011) 480).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator, application
from stages.lqcd.eigen.rayleigh import not_finite
from stages.lqcd.kernels import block_blas, random_numbers, stream
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import empty_field, field_like, zeros_like

STEPS = 20
MOST_STEPS = 600
MARGIN = 0.01
"""Of the width of the spectrum, added to the upper end."""

NARROWEST = 1e-4
"""Width of a spectrum at least, relative to its largest value: a filter tells smaller differences badly."""


LEAST_SCALE = 1e-135
"""Largest eigenvalue below which squares of small residuals underflow, which then count as zero."""


@dataclass(frozen=True)
class SpectrumEstimate:
    """Bounds and density of an operator's spectrum.

    lowest: an upper bound of the lowest eigenvalue. highest, high: a lower and an upper bound of the largest.

    nodes ``[n]`` ascending and counts ``[n]``: about counts[i] eigenvalues lie below nodes[i]. resolution:
    how many eigenvalues the lowest node stands for. steps: applications of the operator.
    fingerprint: that of the operator.
    """

    lowest: float
    highest: float
    high: float
    nodes: NDArray[np.float64]
    counts: NDArray[np.float64]
    resolution: float
    steps: int
    fingerprint: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """The largest eigenvalue in modulus."""
        return max(abs(self.lowest), abs(self.highest))

    def lower_edge(self, count: float) -> float:
        """A point with about so many eigenvalues below it."""
        return float(np.interp(count, self.counts, self.nodes))


def estimate_spectrum(A: LinearOperator, xp: Any, seed: int, count: int) -> SpectrumEstimate:
    """Estimate of a spectrum by Lanczos without reorthogonalisation from a random vector.

    Until `count` eigenvalues can be told from the rest, or `MOST_STEPS`. Raises InputError for an operator
    that gives zero, or so little that squares of residuals underflow.
    """
    run, most = _Lanczos(A, xp, seed), min(MOST_STEPS, int(np.prod(A.shape)))
    while True:
        for _ in range(min(max(STEPS, len(run.alphas) // 2), most - len(run.alphas))):
            run.step()
        spectrum = run.spectrum()
        if run.ended or len(run.alphas) == most or spectrum.resolution < count / 2:
            break
    if spectrum.scale == 0:
        raise InputError(
            f"{type(A).__name__} gives zero: every vector has the eigenvalue 0; check the gauge links"
        )
    if spectrum.scale < LEAST_SCALE:
        raise InputError(
            f"squares of what {type(A).__name__} gives are no numbers in {A.dtype}, as its largest "
            f"eigenvalue is {spectrum.scale:.2g}: multiply it by a number that brings that near one"
        )
    return spectrum


def fingerprint(A: LinearOperator, xp: Any, seed: int) -> NDArray[np.float64]:
    """Numbers alpha = x^H A x and |A x - alpha x| of a random unit vector, others for other operators."""
    run = _Lanczos(A, xp, seed)
    run.step()
    return run.fingerprint


class _Lanczos:
    """The Lanczos recurrence of one random vector; alphas, betas: diagonal and off-diagonal, by step."""

    def __init__(self, A: LinearOperator, xp: Any, seed: int) -> None:
        self.A = A
        self.dimension = int(np.prod(A.shape))
        self.x = empty_field((*A.shape, 1), A.dtype, xp)
        random_numbers.fill_random(self.x, seed, 0)
        self._coefficient = to_device_like(np.zeros((1, 1), complex), self.x)
        self._products: dict[int, Callable[[], None]] = {}
        self._scale(self.x, 1 / self._norm(self.x))
        self.before, self.out = zeros_like(self.x), field_like(self.x)
        self.alphas: list[float] = []
        self.betas: list[float] = [0.0]
        self.ended = False

    def step(self) -> None:
        if self.ended:
            return
        self._multiply()
        alpha = float(as_numpy(block_blas.dots(self.x, self.out)).real[0])
        if not np.isfinite(alpha):
            raise not_finite(self.A)
        block_blas.update(self.out, self.x, self._matrix(-alpha))
        block_blas.update(self.out, self.before, self._matrix(-self.betas[-1]))
        beta = self._norm(self.out)
        self.alphas.append(alpha)
        self.betas.append(beta)
        # an invariant subspace: the Lanczos matrix says it all
        self.ended = beta <= 1e-6 * max(map(abs, self.alphas))
        self._scale(self.out, 1 / max(beta, 1e-300))
        self.before, self.x, self.out = self.x, self.out, self.before

    @property
    def fingerprint(self) -> NDArray[np.float64]:
        return np.array([self.alphas[0], self.betas[1]])

    def spectrum(self) -> SpectrumEstimate:
        nodes, vectors = eigh_tridiagonal(self.alphas, self.betas[1:-1])
        weights = vectors[0] ** 2 * self.dimension
        lowest, highest = nodes[0], nodes[-1]
        high = highest + self.betas[-1] * abs(vectors[-1, -1])
        margin = MARGIN * max(high - lowest, NARROWEST * max(abs(high), abs(lowest)))
        counts = np.cumsum(weights) - weights / 2
        steps = len(self.alphas)
        return SpectrumEstimate(
            lowest, highest, high + margin, nodes, counts, weights[0], steps, self.fingerprint
        )

    def _multiply(self) -> None:
        """``out = A x``; three fields take turns, so that each is x again after three steps."""
        if id(self.x) not in self._products:
            multiply, repeatable = application(self.A, self.x, self.out)
            self._products[id(self.x)] = stream.recorded(multiply, self.A.xp) if repeatable else multiply
        self._products[id(self.x)]()

    def _norm(self, field: Array) -> float:
        return float(np.sqrt(as_numpy(block_blas.norms2(field))[0]))

    def _matrix(self, value: float) -> Array:
        """The matrix of one number, until the next is asked for."""
        self._coefficient.fill(value)
        return self._coefficient

    def _scale(self, field: Array, factor: float) -> None:
        block_blas.rotate(field, self._matrix(factor), field)

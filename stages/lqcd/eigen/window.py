"""Ends and density of a spectrum, and the choice of Chebyshev window, degree and subspace by them.

Stochastic Lanczos quadrature (Lin, Saad, Yang, SIAM Rev. 58 (2016) 34): nodes and weights of the Lanczos
matrix of a random start give the number of eigenvalues below a point. The largest Ritz value plus its
residual is taken as the upper end (Y. Zhou, R.-C. Li, Linear Algebra Appl. 435 (2011) 480).

The upper end of the window is that of the spectrum. The lower edge lies above as many eigenvalues as a
restart keeps: less, and wanted pairs are not amplified; more, and the filter hardly tells wanted ones from
others. The degree is that at which p grows by exp(GROWTH) from the edge to the lowest eigenvalue. What a run
costs depends on it weakly: on uniformly spaced square roots of eigenvalues, as those of a Dirac operator, the
applications to a given tolerance vary by less than 10 % between half and twice this degree, as long as the
subspace is as large as chosen here. Large blocks take fewer steps in a restart cycle, so that each has to do
more: the degree, and the subspace, grow with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import acosh, ceil, inf, log

import numpy as np
import scipy
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator, whole_storage
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.kernels import block_blas, random_numbers
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

GROWTH = 1.8
"""exp of this is what a filter amplifies the lowest eigenvalue by, for single vectors on a large system."""
GROWTH_OF_MANY = 8.0
"""The same for systems so small that many of their eigenvectors are wanted: products with the basis take
most of the time there, and a higher degree saves steps, at as many applications of the operator."""
GROWTH_PER_BLOCK = 0.3
MOST_DEGREE = 4000
MOST_GROWTH = 30
"""A degree given by the user amplifies by exp of this at most."""

LOSS = 1.4
"""Residuals stay above about degree^LOSS / 8 rounding units of the largest eigenvalue, on a GPU / 4."""
DAMPING = 12, 24
"""Least and highest degree of a polynomial against that."""

NARROW = 1e-8
"""Part of the spectrum below the edge: less is as good as none, and the degree is near `MOST_DEGREE`."""

MOST_MOVES = 4

ABOVE = 0.05
"""The edge is put this much higher: it may have fallen on a degenerate eigenvalue."""

KEPT = 0.5
"""Part of the columns beyond the wanted ones that a restart keeps."""


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


def estimate_spectrum(A: LinearOperator, seed: int, count: int) -> SpectrumEstimate:
    """Estimate of a spectrum by Lanczos without reorthogonalisation from a random vector.

    Until `count` eigenvalues can be told from the rest, or `MOST_STEPS`. Raises InputError for an operator
    that gives zero, or so little that squares of residuals underflow.
    """
    run, most = _Lanczos(A, seed), min(MOST_STEPS, int(np.prod(A.shape)))
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


def fingerprint(A: LinearOperator, seed: int) -> NDArray[np.float64]:
    """Numbers alpha = x^H A x and |A x - alpha x| of a random unit vector, others for other operators."""
    run = _Lanczos(A, seed)
    run.step()
    return run.fingerprint


def not_finite(A: LinearOperator) -> InputError:
    """The error that says so."""
    return InputError(f"{type(A).__name__} gives numbers that are NaN or infinite: check the gauge links")


class _Lanczos:
    """The Lanczos recurrence of one random vector; alphas, betas: diagonal and off-diagonal, by step."""

    def __init__(self, A: LinearOperator, seed: int) -> None:
        self.A = A
        self.dimension = int(np.prod(A.shape))
        self.x = empty_field((*A.shape, 1), A.dtype, A.xp)
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
        nodes, vectors = scipy.linalg.eigh_tridiagonal(self.alphas, self.betas[1:-1])
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
            storage = whole_storage(self.A)
            self._products[id(self.x)] = storage.recorded(storage.product(self.x, self.out))
        self._products[id(self.x)]()

    def _norm(self, field: Array) -> float:
        return float(np.sqrt(as_numpy(block_blas.norms2(field))[0]))

    def _matrix(self, value: float) -> Array:
        """The matrix of one number, until the next is asked for."""
        self._coefficient.fill(value)
        return self._coefficient

    def _scale(self, field: Array, factor: float) -> None:
        block_blas.rotate(field, self._matrix(factor), field)


def subspace_size(vectors: int, block: int, dimension: int) -> int:
    """Columns of the basis: twice the wanted ones and six blocks, at most the whole space."""
    size = 2 * vectors + 6 * block
    return dimension if size >= 0.75 * dimension else size


def kept_columns(vectors: int, subspace: int, block: int) -> int:
    """Columns that a restart keeps; what is left is filled by whole blocks, two at least."""
    columns = vectors + int(KEPT * (subspace - vectors))
    steps = max(2, (subspace - columns) // block)
    return subspace - steps * block


@dataclass(frozen=True)
class WindowChoice:
    """The wanted filter: window (low, high) and degree, or None to have them chosen.

    restart_columns: number that a restart keeps; block: width of a block; growth: `GROWTH`, or another one.
    accuracy: the tolerance of residuals in rounding units, by which a filter gets its damping.
    """

    window: tuple[float, float] | None
    degree: int | None
    restart_columns: int
    block: int
    growth: float = GROWTH
    accuracy: float = inf

    def first(self, spectrum: SpectrumEstimate) -> ChebyshevFilter:
        """The filter to begin with.

        Raises InputError for a window that leaves out the upper end, or a degree that rounding forbids.
        """
        if self.window is None:
            edge = spectrum.lower_edge(self.restart_columns)
            low = edge + ABOVE * (edge - spectrum.lowest)
            return self._filter(low, spectrum.high, spectrum.lowest, refuse=True)
        low, high = self.window
        if high < spectrum.highest:
            raise InputError(
                f"a filter for the window ({low:g}, {high:g}) amplifies eigenvalues above it, and there are "
                f"some up to at least {spectrum.highest:g}: give an upper end of {spectrum.high:g} or no "
                "window"
            )
        return self._filter(low, high, min(spectrum.lowest, low), refuse=True)

    def moved(
        self,
        filter: ChebyshevFilter,
        quotients: NDArray[np.float64],
        ritz: NDArray[np.float64],
        restart_columns: int,
    ) -> ChebyshevFilter | None:
        """A better filter after a restart, or None.

        quotients: Rayleigh quotients of A for the wanted pairs, ascending. ritz: Ritz values of p(A) that are
        not locked, descending; restart_columns: of these, those that a restart keeps.
        """
        lowest, top = float(quotients.min()), float(quotients.max())
        if top > filter.high or ritz[-1] < -1.5:
            y = np.cosh(np.arccosh(np.abs(ritz).max()) / filter.degree)
            reached = max(top, (filter.low + filter.high + y * (filter.high - filter.low)) / 2)
            return self._filter(filter.low, reached + MARGIN * (reached - filter.low), lowest)
        if filter.degree == 1:
            return None
        if ritz[0] <= 1:  # all below low are locked, and they are too few
            return self._filter(top + 0.1 * (filter.high - top), filter.high, lowest)
        edge = float(filter.eigenvalues(ritz[min(restart_columns, len(ritz)) - 1]))
        if self.window is None and filter.low - lowest > 3 * (edge - lowest) and edge > top:
            return self._filter(edge + ABOVE * (edge - lowest), filter.high, lowest)
        return None

    def _filter(self, low: float, high: float, lowest: float, refuse: bool = False) -> ChebyshevFilter:
        low = min(low, lowest + 0.9 * (high - lowest))
        if low - lowest <= NARROW * (high - lowest):
            low = lowest + 1e-3 * (high - lowest)
        rate = acosh((low + high - 2 * lowest) / (high - low))
        if self.degree is None:
            growth = self.growth + GROWTH_PER_BLOCK * log(self.block)
            return self._damped(low, high, int(np.clip(ceil(growth / rate), 2, MOST_DEGREE)))
        most = max(1, int(MOST_GROWTH / rate))
        if refuse and self.degree > most:
            raise InputError(
                f"a Chebyshev filter of degree {self.degree} over the window ({low:.3g}, {high:.3g}) "
                f"amplifies the lowest eigenvalue, {lowest:.3g}, by 1e{rate * self.degree / log(10):.0f}, "
                f"and all else is lost to rounding: give a degree of at most {most}, or none"
            )
        return self._damped(low, high, min(self.degree, most))

    def _damped(self, low: float, high: float, degree: int) -> ChebyshevFilter:
        """A filter with a second polynomial where rounding in the first would hold up residuals."""
        damping = int(np.clip(degree // 12, *DAMPING)) if degree**LOSS > self.accuracy else 0
        return ChebyshevFilter(low, high, degree, damping)

"""Numbers of noise vectors that the pieces of an estimate need for a stochastic error, at least cost.

For a sum of means with variances a_A / N_A and costs k_A a vector the optimum is Neyman's, N_A ~ sqrt(a_A /
k_A) (J. R. Stat. Soc. 97 (1934) 558). Vectors are whole, come in chunks and are shared: the correction is
measured on vectors that have sloppy solves, too, and the two are correlated; a correlator's variance has
terms in 1 / N^2. So the counts are raised step by step, each time where the variance falls most per cost: for
separable convex variances that is the optimum in whole steps (Fox, Manage. Sci. 13 (1966) 210), and Neyman's
in the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.analysis.stochastic_error import total_variance

Counts = tuple[int, ...]
"""Noise vectors of each piece, nested: none larger than the one before."""

GROWTH = 4
"""A round multiplies a count by no more: the variances of a small pilot are not trusted further."""
HIDDEN = sqrt(0.5)
"""A round multiplies the error by this while it hides the gauge noise that it is compared with."""
UNLIMITED = 10**9
LEAST_SHARE = 0.75
"""Of the pairs' part in an averaged variance of C(t), whatever the estimate of its linear part.

More than in errors that decide nothing: rounds would stop on fluctuations that make the error small.
"""
MARGIN = 0.1
"""Largest surplus of vectors, relative, that a round asks for because its variances are uncertain."""
FINENESS = 64
"""Counts are raised in steps of a chunk, or of this part of the count where that is more."""


@dataclass(frozen=True)
class VarianceModel:
    """Stochastic variance as a function of counts.

    From averaged moments of `stages.lqcd.analysis.stochastic_error`.

    linear: ``[piece, piece]``, falling like 1/N. quadratic: ``[piece, piece, piece, piece]``, like 1/N^2.
    """

    linear: NDArray[np.float64]
    quadratic: NDArray[np.float64]

    def variance(self, counts: Sequence[float]) -> float:
        """Variance of the estimate with `counts` noise vectors of each piece.

        At least `LEAST_SHARE` of the pairs' part: where the mean loop is near zero the estimate of the linear
        part may come out negative.
        """
        return float(total_variance(self.linear, self.quadratic, counts, LEAST_SHARE))


@dataclass(frozen=True)
class Limits:
    """Counts between which a decision is free; all are multiples of `step` above `least`."""

    least: Counts
    most: Counts
    step: int


@dataclass(frozen=True)
class Allocation:
    """Counts, the error that the model predicts for them, and what they cost a configuration."""

    counts: Counts
    error: float
    cost: float


def least_cost(model: VarianceModel, costs: Sequence[float], error: float, limits: Limits) -> Allocation:
    """The cheapest counts whose predicted error is at most `error`, or the largest within the limits.

    costs: of one vector of each piece; the correction's is that of its fine solve alone.
    """
    counts = limits.least
    variance = model.variance(counts)
    while variance > error**2:
        moves = list(_moves(counts, limits))
        if not moves:
            break
        prices = np.array([_cost(costs, move) - _cost(costs, counts) for move in moves])
        variances = np.array([model.variance(move) for move in moves])
        best = int(np.argmax((variance - variances) / prices))
        counts, variance = moves[best], float(variances[best])
    return Allocation(counts, sqrt(variance), _cost(costs, counts))


def surplus(counts: Counts, configurations: int) -> float:
    """Fraction by which a round aims below its target's variance: a relative standard error of its own.

    sqrt(2 / nu) with nu = (N - 1) times configurations for the smallest count N, as if directions and times
    told nothing more; at most `MARGIN`. Pilots of few vectors find too small a variance as often as too large
    a one, and a round that stops on the former has missed its target unawares: hence the surplus, and a new
    measurement of the variance in every round.
    """
    return min(MARGIN, sqrt(2 / ((min(counts) - 1) * configurations)))


def next_counts(
    model: VarianceModel,
    costs: Sequence[float],
    asked: float,
    counts: Counts,
    configurations: int,
    most: int,
    step: int,
) -> Allocation:
    """Counts of the next round, from counts with an error above `asked` (0: noise hides it).

    The optimum for the target, as far as one round and `most` vectors go: where they end first, the pieces
    that are cheap to have stay in proportion. The counts given, if `most` leaves no room for more.
    """
    wanted = (
        asked / sqrt(1 + surplus(counts, configurations)) if asked else HIDDEN * sqrt(model.variance(counts))
    )
    free = Limits(counts, (UNLIMITED,) * len(counts), step)
    bound = Limits(counts, (most - most % step,) * len(counts), step)
    best = least_cost(model, costs, wanted, free)
    if max(best.counts) > max(bound.most):
        bounded = least_cost(model, costs, wanted, bound)
        best = bounded if bounded.error <= wanted else best
    reached = tuple(
        max(count, min(new, GROWTH * count, limit))
        for new, count, limit in zip(best.counts, counts, bound.most, strict=True)
    )
    return Allocation(reached, sqrt(model.variance(reached)), _cost(costs, reached))


def _moves(counts: Counts, limits: Limits) -> Iterator[Counts]:
    """One piece more, with those before it as far as they must have as many; or all up to one together."""
    moves = set()
    for piece, count in enumerate(counts):
        added = limits.step * max(1, count // (FINENESS * limits.step))
        alone = [max(n, count + added) for n in counts[:piece]]
        together = [n + added for n in counts[:piece]]
        for before in (alone, together):
            move = (*before, count + added, *counts[piece + 1 :])
            if move not in moves and all(n <= most for n, most in zip(move, limits.most, strict=True)):
                moves.add(move)
                yield move


def _cost(costs: Sequence[float], counts: Counts) -> float:
    return sum(cost * count for cost, count in zip(costs, counts, strict=True))

"""Ends of a Lanczos run: residuals that no longer fall, and eigenvalues that have been missed.

A history is a list of (restart, pairs done, largest residual of the wanted pairs), one entry a restart cycle.

A Krylov space of b random vectors meets at most b dimensions of an eigenspace. Where more eigenvalues than
that coincide, further copies enter by rounding alone. So, after all wanted pairs are found, a random block
orthogonal to everything found is iterated with the same filter p. If an eigenvector with p = g were left,
the largest Ritz value of that Krylov space would after j steps be within

    (g + 1) tan^2 / T_{j-1}(gamma)^2,   gamma = 1 + 2 (g - theta) / (theta + 1),   tan^2 = dimension / overlap

of g (Y. Saad, Numerical methods for large eigenvalue problems, 6.6), where theta bounds the rest of the
spectrum above the pairs that V keeps. It is excluded when the Ritz value theta found stays further away
than that. Copies that lie in what V keeps do not show in that block; the largest Ritz value of both together
does (`stages.lqcd.eigen.block_lanczos`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.eigen.eigenpairs import EigenStatus

PATIENCE = 20
NEAR_ROUNDING = 1e4
"""A run ends if residuals below so many rounding units of the largest eigenvalue rest for so many cycles."""

STALLED_CYCLES = 60
"""A run ends if at any height no residual halves its least and no pair is done for so many cycles."""

GAP = 10
"""Times the mean distance of the eigenvalues below it that a gap measures behind a cluster."""

History = list[tuple[int, int, float]]

CHANCE = 1e-3
"""Probability that a random block overlaps less with the missing vector than is supposed."""

SAME = 1e-6
"""Relative difference of values of p that are taken as one."""


def resting(history: History, dtype: DTypeLike, scale: float) -> EigenStatus | None:
    """PRECISION or STALLED where residuals rest: no pair was done, and the least of them has not halved.

    Near rounding in `PATIENCE` cycles, above it in `STALLED_CYCLES`. dtype: of the vectors. scale: the
    largest eigenvalue.
    """
    if len(history) > PATIENCE:
        (_, before, first), (_, now, last) = history[-PATIENCE - 1], history[-1]
        near = NEAR_ROUNDING * float(np.finfo(dtype).eps) * scale
        if before == now and first / 2 <= last <= near:
            return EigenStatus.PRECISION
    if len(history) > STALLED_CYCLES:
        earlier, recent = history[:-STALLED_CYCLES], history[-STALLED_CYCLES:]
        least = min(residual for _, _, residual in earlier)
        if earlier[-1][1] == recent[-1][1] and min(residual for _, _, residual in recent) > least / 2:
            return EigenStatus.STALLED
    return None


def vectors_to_ask_for(eigenvalues: NDArray[np.float64], wanted: int) -> int:
    """Vectors below the clearest gap beyond the wanted ones, twice as many as wanted where there is none.

    eigenvalues: approximate ones, ascending, more than are wanted.
    """
    count = np.arange(wanted + 1, len(eigenvalues))
    if count.size == 0:
        return 2 * wanted
    rounding = float(np.finfo(float).eps) * np.abs(eigenvalues).max()
    spacing = np.maximum(eigenvalues[count - 1] - eigenvalues[0], rounding) / (count - 1)
    gaps = (eigenvalues[count] - eigenvalues[count - 1]) / spacing
    return int(count[gaps.argmax()]) if gaps.max() >= GAP else 2 * wanted


def largest_cluster(values: NDArray[np.float64], width: float) -> int:
    """Most of the ascending values within `width` of each other."""
    ends = np.searchsorted(values, values + width, side="right")
    return int((ends - np.arange(len(values))).max())


def missing(p: NDArray[np.float64], largest: float, steps: int, block: int, dimension: int) -> bool | None:
    """True if an eigenvector with p above the least of those found is missing, False if not, None: too early.

    p: at the eigenvalues found, descending. largest: Ritz value on the fresh Krylov space of so many steps.
    """
    if largest > p[-1] * (1 + SAME):
        return True
    above = p[p > largest * (1 + SAME)]
    if above.size == 0:
        return False if largest >= p[0] * (1 - SAME) else None
    g, theta = above.min(), max(largest, -0.999)
    gamma = 1 + 2 * (g - theta) / (theta + 1)
    overlap = CHANCE if block == 1 else block * CHANCE ** (1 / block) / 2
    log_growth = 2 * (steps - 1) * np.arccosh(gamma) - 2 * np.log(2)
    return False if log_growth > np.log((g + 1) * dimension / overlap / (g - theta)) else None

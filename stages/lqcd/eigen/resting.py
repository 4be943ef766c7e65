"""Residuals of a Lanczos run that no longer fall, at rounding or above it, and how many vectors to ask for.

A history is a list of (restart, pairs done, largest residual of the wanted pairs), one entry a restart cycle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

PATIENCE = 20
NEAR_ROUNDING = 1e4
"""A run ends if residuals below so many rounding units of the largest eigenvalue rest for so many cycles."""

STALLED_CYCLES = 60
"""A run ends if at any height no residual halves its least and no pair is done for so many cycles."""

GAP = 10
"""Times the mean distance of the eigenvalues below it that a gap measures behind a cluster."""

History = list[tuple[int, int, float]]


def at_rounding(history: History, dtype: DTypeLike, scale: float) -> bool:
    """True if residuals near rounding have not halved, and no pair was done, in `PATIENCE` cycles.

    dtype: of the vectors. scale: the largest eigenvalue.
    """
    if len(history) <= PATIENCE:
        return False
    (_, before, first), (_, now, last) = history[-PATIENCE - 1], history[-1]
    near = NEAR_ROUNDING * float(np.finfo(dtype).eps) * scale
    return before == now and first / 2 <= last <= near


def above_rounding(history: History) -> bool:
    """True if the least of the residuals has not halved, and no pair was done, in `STALLED_CYCLES` cycles."""
    if len(history) <= STALLED_CYCLES:
        return False
    before, last = history[:-STALLED_CYCLES], history[-STALLED_CYCLES:]
    least = min(residual for _, _, residual in before)
    return before[-1][1] == last[-1][1] and min(residual for _, _, residual in last) > least / 2


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

"""The end of solves that no longer fall: estimates that rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.solvers.recurrence import Vector

PATIENCE, PATIENT = 200, 2
"""Estimates rest if none has halved for so many iterations, and for so many times those before that."""


class Rest:
    """Watch over the estimates of a cycle; over: they rest.

    norms: at the beginning. patience: iterations without a halving, 0 while rounding is not suspected: then
    every estimate must first have fallen near the rounding of this dtype (None: they never rest).
    """

    def __init__(self, norms: Vector, patience: int, dtype: np.dtype | None) -> None:
        self.least, self.patience, self.over = norms.copy(), patience, False
        near = 0.0 if dtype is None else float(np.finfo(dtype).eps) ** 0.4
        self.floor = np.inf if patience else near * norms
        self.fallen_at: int | None = None

    def after(self, iterations: int, estimate: Vector, still_open: NDArray[np.bool_]) -> bool:
        """True if estimates that are open after so many iterations of the solve no longer fall."""
        halved = still_open & (estimate < 0.5 * self.least)
        self.least = np.where(halved, estimate, self.least)
        if self.fallen_at is None or halved.any():
            self.fallen_at = iterations
        patience = self.patience or max(PATIENCE, PATIENT * self.fallen_at)
        if iterations - self.fallen_at >= patience and (self.least < self.floor)[still_open].all():
            self.over, self.patience = True, patience
        return self.over

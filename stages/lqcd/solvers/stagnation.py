"""Solves that no longer fall: when one is over, and the x of the least true residual on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign
from stages.lqcd.solvers.recurrence import Vector

PATIENCE, LONG_PATIENCE, PATIENT = 200, 1000, 2
"""Residuals rest if none has halved for so many iterations, the first number near rounding and the second
elsewhere, and for so many times those before that."""


class Rest:
    """Watch over the estimates of a cycle; over: they rest, for `patience` iterations.

    least: norms to halve. floor: norms that every estimate must have fallen below.
    """

    def __init__(self, least: Vector, patience: int, floor: Vector, fallen_at: int | None = None) -> None:
        self.least, self.patience, self.floor, self.fallen_at = least.copy(), patience, floor, fallen_at
        self.over, self.grows, self.half = False, True, 0.5 * least

    @classmethod
    def near_rounding(cls, norms: Vector, dtype: np.dtype) -> Rest:
        """A watch over a cycle in one precision, which begins with these norms."""
        return cls(norms, PATIENCE, float(np.finfo(dtype).eps) ** 0.4 * norms)

    @classmethod
    def anywhere(cls, least: Vector, gained_at: int) -> Rest:
        """A watch over one cycle of many; the last gain on these true norms came after so many iterations."""
        return cls(least, LONG_PATIENCE, np.full_like(least, np.inf), gained_at)

    @classmethod
    def suspected(cls, norms: Vector, patience: int) -> Rest:
        """A watch over a cycle after one that rested for so many iterations."""
        rest = cls(norms, patience, np.full_like(norms, np.inf))
        rest.grows = False
        return rest

    def after(self, iterations: int, estimate: Vector, still_open: NDArray[np.bool_]) -> bool:
        """True if estimates that are open after so many iterations of the solve no longer fall."""
        halved = estimate < self.half
        if self.fallen_at is None or (np.count_nonzero(halved) and np.count_nonzero(halved & still_open)):
            self.least = np.where(halved & still_open, estimate, self.least)
            self.half = 0.5 * self.least
            self.fallen_at = iterations
        patience = max(self.patience, PATIENT * self.fallen_at if self.grows else 0)
        if iterations - self.fallen_at >= patience and (self.least < self.floor)[still_open].all():
            self.over, self.patience = True, patience
        return self.over


class LeastResidual:
    """The least true residuals so far, norms ``[N]``, and x of the columns that have risen since.

    x ``[..., 1]``, by column, is copied at a rise only: solves that fall at each replacement take no memory.
    """

    def __init__(self, norms: Vector) -> None:
        self.norms = norms.copy()
        self.x: dict[int, Array] = {}

    def enter(self, norms: Vector, still_open: NDArray[np.bool_], x: Array) -> list[int]:
        """Take note of the norms of x; columns that have risen just now, of which x is copied as it is."""
        risen = still_open & ~(norms <= self.norms)
        self.norms = np.where(risen, self.norms, norms)
        columns = np.flatnonzero(risen).tolist()
        first = [column for column in columns if column not in self.x]
        self.x = {column: self.x[column] for column in columns if column in self.x}
        self.x |= {column: lane_blas.lane_take(x, np.array([column])) for column in first}
        return first

    def take_back(self, risen: list[int], correction: Array, unit: Vector, columns: NDArray[np.intp]) -> None:
        """Subtract a correction of a block's columns, in these units, from the x that `enter` has copied."""
        for column in risen:
            place = np.flatnonzero(columns == column)
            share = lane_blas.lane_take(correction, place)
            lane_blas.lane_add(self.x[column], share, to_device_like(-unit[place], share))

    def restore(self, x: Array) -> bool:
        """Put the x of the least residuals back into the columns that have risen; False if there are none."""
        for column, least in self.x.items():
            assign(x[..., column : column + 1], least)
        restored = bool(self.x)
        self.x = {}
        return restored

"""Solves that no longer fall: when one is over, and the x of the least true residual on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign
from stages.lqcd.solvers.recurrence import Vector

PATIENCE, PATIENT = 200, 2
"""Estimates rest if none has halved for so many iterations, and near rounding, in one precision, for so many
times those before that. Residuals that are replaced at rests follow with fewer iterations where single
precision hardly resolves the lowest modes: random links 6^4, m = 0.0005, take 4762, at rests of 1000 7105.
"""

LONG_PATIENCE = 1000
"""So many iterations without a gain are never the end of a solve."""

STALLED_CYCLES = 3
"""So many replacements since the last gain that count as rounding are the end of a solve, after `PATIENCE`
iterations and as many as came before it: BiCGstab in half precision may miss three and gain at the next.
"""

IN_VAIN = 50
"""So many replacements in turn that were all taken back, in a long time without a gain, are the end, too."""


class Rest:
    """Watch over the estimates of a cycle, which ends where they rest.

    norms: to halve. floor: norms that every estimate must have fallen below.
    """

    def __init__(self, norms: Vector, floor: Vector | float = np.inf, near_rounding: bool = False) -> None:
        self.least, self.half, self.floor, self.near_rounding = norms, 0.5 * norms, floor, near_rounding
        self.fallen_at: int | None = None

    @classmethod
    def at_rounding(cls, norms: Vector, dtype: np.dtype) -> Rest:
        """A watch over a cycle in this precision, for estimates that rest near its rounding."""
        return cls(norms, float(np.finfo(dtype).eps) ** 0.4 * norms, True)

    def after(self, iterations: int, estimate: Vector, still_open: NDArray[np.bool_]) -> bool:
        """True if estimates that are open after so many iterations of the solve no longer fall."""
        halved = estimate < self.half
        if self.fallen_at is None or (np.count_nonzero(halved) and np.count_nonzero(halved & still_open)):
            self.least = np.where(halved & still_open, estimate, self.least)
            self.half = 0.5 * self.least
            self.fallen_at = iterations
        patience = max(PATIENCE, PATIENT * self.fallen_at) if self.near_rounding else PATIENCE
        return iterations - self.fallen_at >= patience and bool((self.least < self.floor)[still_open].all())


class Stagnation:
    """Evidence that rounding holds a solve up: estimates that have shown a gain which is none.

    A gain is a right-hand side that is done, or whose true residual has halved since its last gain. Since
    then estimates have shown that residual times their falls from one replacement to the next.
    limit: of iterations, for a method that falls at an even rate, as it forgets its directions; else None.
    """

    def __init__(self, norms: Vector, unknowns: int, limit: int | None = None) -> None:
        self.gained, self.shown, self.unknowns, self.limit = norms.copy(), norms.copy(), unknowns, limit
        self.gained_at = self.stalled = self.in_vain = 0
        self.mark, self.marked_at, self.slow = norms.copy(), 0, False

    def enter(self, before: Vector, estimate: Vector, norms: Vector, target: Vector, iterations: int) -> bool:
        """True if a replacement after so many iterations counts as rounding.

        before, estimate, norms: |r| after the last replacement, as it was believed to be at this one, and is.
        """
        was_open, done = before > target, norms <= target
        self.in_vain = 0 if (norms < before).any() else self.in_vain + 1
        self.shown[was_open] *= (estimate / np.where(was_open, before, 1))[was_open]
        gain = was_open & (done | (norms < 0.5 * self.gained))
        if gain.any():
            self.gained = np.where(gain, norms, self.gained)
            self.shown, self.gained_at, self.stalled = norms.copy(), iterations, 0
            self.mark, self.marked_at, self.slow = norms.copy(), iterations, False
            return False
        if self.limit is not None and iterations - self.marked_at >= LONG_PATIENCE:
            remains = np.where(done, 1, norms / np.where(self.mark > 0, self.mark, 1))
            self.slow = iterations - self.marked_at > -np.log2(remains.min()) * self.limit
            self.mark, self.marked_at = norms.copy(), iterations
        missed = was_open & (self.shown < 0.5 * self.gained) & (self.shown < 0.5 * norms)
        if missed.any():
            self.shown, self.stalled = norms.copy(), self.stalled + 1
        return bool(missed.any())

    def over(self, iterations: int, taken_back: bool = False) -> bool:
        """True if the solve is to end after so many iterations; taken_back: what raises the residual is.

        Without rounding conjugate gradients end after as many as there are unknowns; with it, at conditions
        of 1e8, they take up to half the square of that in double precision. A method that falls at an even
        rate is over if by its last iterations the limit comes before a gain.
        """
        since = iterations - self.gained_at
        stalled = self.stalled >= STALLED_CYCLES and since >= max(PATIENCE, self.gained_at)
        in_vain = taken_back and self.in_vain >= IN_VAIN and since >= LONG_PATIENCE
        if stalled or in_vain:
            return True
        hopeless = self.slow if self.limit is not None else since >= self.unknowns**2
        return hopeless and since >= max(LONG_PATIENCE, PATIENT * self.gained_at)


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

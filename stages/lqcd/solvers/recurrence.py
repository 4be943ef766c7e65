"""A Krylov recurrence as reliable updates call it, and the rules by which its cycles and solves end.

A recurrence estimates the norms of residuals. A cycle of it ends (`Cycle`) where the estimates are below the
tolerance or have fallen far enough for the next replacement, or rest for long, which conjugate gradients may
do without rounding: the true residual then shows whether they are right. A solve ends (`StopRules`) by true
residuals alone: all reach the tolerance, or a gain that estimates have shown and that is none, for rounding
has added to the residual, was seen several times (`Stagnation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Storage
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign
from stages.lqcd.solvers.solution import SolveStatus, Vector

SAFETY = 0.999
"""The recurrence aims at this part of the tolerance, so that rounding alone does not cost another cycle."""

DIVERGED_AT = 1e6
"""Growth of an estimated residual over that at the start and that of x = 0 which ends a solve."""

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

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""Widths that a block shrinks to: few, because kernels are compiled for each."""


def next_width(needed: int, width: int) -> int:
    """The narrowest of `WIDTHS` and `width` that holds `needed` columns."""
    return width if needed == width else min(w for w in (*WIDTHS, width) if w >= needed)


def column_norms(field: Array) -> Vector:
    """|field| of each right-hand side, float64 ``[N]`` on the host."""
    return np.sqrt(as_numpy(block_blas.norms2(field)))


class BreakdownError(Exception):
    """Raised by a recurrence that cannot go on."""

    def __init__(self, status: SolveStatus) -> None:
        super().__init__(status.value)
        self.status = status

    @property
    def useless(self) -> bool:
        """True if the correction of the broken cycle must not be added."""
        return self.status in (SolveStatus.NOT_FINITE, SolveStatus.DIVERGED)


Directions: TypeAlias = Any
"""Search directions of a recurrence, in the form of its method; None: there are none."""


class Recurrence(Protocol):
    """A Krylov method for the correction y of A y = r, for a block of columns, made with its residual.

    One whose estimates are norms of another field has `believed`, which makes of a true residual the norms
    ``[width]`` that an estimate without rounding would be.
    """

    @property
    def lag(self) -> int:
        """Iterations to start ahead of the estimate that is asked for: 0, or more to keep a device busy."""

    @property
    def full(self) -> bool:
        """True if the next iteration needs a replacement first: there is no room for another direction."""

    @property
    def correction(self) -> Array:
        """y, ``[..., width]``, of the inner precision; asked for at the end of a cycle."""

    def replace(self, residual: Array, target: Vector) -> None:
        """Start again from y = 0 with this true residual of the same columns, keeping the search directions.

        residual: ``[..., width]``, may be overwritten. target: norms to reach.
        """

    def directions(self, columns: NDArray[np.intp]) -> Directions:
        """The search directions of these columns of the block, for the recurrence that takes over."""

    def start(self) -> int:
        """Begin an iteration; returns products with A, columns counted.

        On a device it returns before the iteration is done.
        """

    def estimate(self) -> Vector:
        """Residual norms ``[width]`` of the oldest iteration not yet asked for. Raises BreakdownError."""


Begin = Callable[[Storage, Array, Vector, Directions], Recurrence]
"""`stages.lqcd.solvers.krylov.KrylovSolver.begin`."""


class End(Enum):
    """Reasons for the end of a cycle."""

    CONVERGED = auto()
    REPLACE = auto()


@dataclass
class Plateau:
    """Watch over the estimates of a cycle, which ends where they rest.

    lowest: norms ``[width]`` to halve. floor: norms that every estimate must have fallen below.
    patience: rests last at least so many times the iterations before them.
    """

    lowest: Vector
    floor: Vector | float = np.inf
    patience: int = 0
    fallen_at: int | None = None

    @classmethod
    def at_rounding(cls, norms: Vector, dtype: np.dtype) -> Plateau:
        """A watch over a cycle in this precision, for estimates that rest near its rounding."""
        return cls(norms, float(np.finfo(dtype).eps) ** 0.4 * norms, PATIENT)

    def reached(self, iterations: int, estimate: Vector, still_open: NDArray[np.bool_]) -> bool:
        """True if estimates that are open after so many iterations of the solve no longer fall."""
        halved = estimate < 0.5 * self.lowest
        if self.fallen_at is None or (np.count_nonzero(halved) and np.count_nonzero(halved & still_open)):
            self.lowest = np.where(halved & still_open, estimate, self.lowest)
            self.fallen_at = iterations
        patience = max(PATIENCE, self.patience * self.fallen_at)
        below = self.lowest < self.floor
        return iterations - self.fallen_at >= patience and bool(below[still_open].all())


@dataclass
class Cycle:
    """The rules of one cycle, for estimated norms of the block's columns ``[width]``.

    target: norms to reach. largest: of the columns since the last replacement, from which `delta` counts;
    with `fixed` that at the replacement. delta: fall that asks for the next replacement, 0: none does.
    diverged: norms that end the solve. narrows: whether converged columns leave the block.
    max_iterations: of the solve.
    """

    target: Vector
    largest: Vector
    diverged: Vector
    delta: float
    fixed: bool
    narrows: bool
    max_iterations: int
    plateau: Plateau

    def end(self, iterations: int, estimate: Vector, full: bool) -> End | None:
        """The reason to end it after so many iterations of the solve, if any; full: the recurrence is.

        Raises BreakdownError where estimates grow without limit.
        """
        if np.count_nonzero(estimate > self.diverged):
            raise BreakdownError(SolveStatus.DIVERGED)
        still_open = estimate > self.target
        count = int(np.count_nonzero(still_open))
        if count == 0:
            return End.CONVERGED
        fallen = False
        if self.delta > 0:
            self.largest = self.largest if self.fixed else np.maximum(self.largest, estimate)
            fallen = bool(np.count_nonzero(still_open & (estimate < self.delta * self.largest)))
        rests = self.plateau.reached(iterations, estimate, still_open)
        narrower = self.narrows and next_width(count, estimate.size) < estimate.size
        replace = fallen or rests or full or narrower or iterations >= self.max_iterations
        return End.REPLACE if replace else None


class StopRules:
    """The rules of a solve, for true norms of residuals ``[N]``, at the start and after each replacement.

    norms: at the start. target: norms to reach. unknowns: of a right-hand side. even_fall: whether the method
    forgets its directions at replacements, so that it falls at an even rate. rounding_seen: rounding has held
    up a solve in one precision: its residual is then replaced as often as in mixed precision.
    """

    def __init__(
        self, norms: Vector, target: Vector, max_iterations: int, unknowns: int, even_fall: bool
    ) -> None:
        self.target, self.max_iterations = target, max_iterations
        self.stagnation = Stagnation(norms, unknowns, max_iterations if even_fall else None)
        self.rounding_seen = False

    def status(self, norms: Vector, iterations: int) -> SolveStatus | None:
        """The end of the solve after so many iterations, if it is one."""
        if not np.isfinite(norms).all():
            return SolveStatus.NOT_FINITE
        if (norms <= self.target).all():
            return SolveStatus.CONVERGED
        if iterations >= self.max_iterations:
            return SolveStatus.ITERATION_LIMIT
        return SolveStatus.STAGNATED if self.stagnation.over(iterations, self.rounding_seen) else None

    def replaced(self, before: Vector, estimate: Vector, norms: Vector, iterations: int, mixed: bool) -> None:
        """Take note of a replacement: |r| at the last one, as it was believed to be at this one, and is."""
        rounded = self.stagnation.enter(before, estimate, norms, self.target, iterations)
        self.rounding_seen |= rounded and not mixed


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

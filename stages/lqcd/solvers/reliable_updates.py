"""Reliable updates: an inner recurrence for a correction, an outer true residual.

The recurrence (CG, BiCGstab, GCR, ...) works on A y = r, possibly in lower precision:

    1  r = b - A x                 in the precision of b; done where |r| <= tolerance |b| for all columns
    2  hand r to the recurrence    which starts again at y = 0 and keeps its search directions
    3  iterate                     until the estimates are below the tolerance, or r is to be replaced
    4  x += y, and 1 again

("reliable updates"; Sleijpen and van der Vorst, Computing 56 (1996) 141.) In one precision step 3 ends when
the recurrence believes to have converged; with a single-precision recurrence, and in a deflated solve, also
when the residual of any right-hand side has fallen by the method's `update_at` since the last time. True
residuals alone finish a solve.

Where the estimates rest for long (`Rest`), which conjugate gradients may do without rounding, step 4 shows
whether they are true. A gain that they have shown and that is none, for rounding has added to the residual,
counts: some of these end a solve (`Stagnation`). In one precision the residual is then also replaced as
often as in mixed precision, and what raises it is taken back. A solve that misses the tolerance gives the x
of the least residuals (`LeastResidual`).

A deflated solve corrects x by what a subspace says of the true residual, at the start and at replacements:
x += V (V^H A V)^-1 V^H (b - A x). Low modes that rounding or inexact vectors have let grow are gone again,
also in double precision, where vectors stored in single would otherwise help only at the beginning
(`stages.lqcd.solvers.space`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import copied, zeros_like
from stages.lqcd.solvers.recurrence import (
    Begin,
    BreakdownError,
    Indirect,
    Recurrence,
    Unattended,
    Vector,
    column_norms,
    next_width,
)
from stages.lqcd.solvers.reliable_solver import ReliableUpdates
from stages.lqcd.solvers.solution import Solution, SolveStatus
from stages.lqcd.solvers.space import Correction, CorrectionSchedule
from stages.lqcd.solvers.stagnation import LeastResidual, Rest, Stagnation

SAFETY = 0.999
"""The recurrence aims at this part of the tolerance, so that rounding alone does not cost another cycle."""

FINAL = (SolveStatus.NOT_FINITE, SolveStatus.DIVERGED)
"""Breakdowns whose correction is of no use."""

DIVERGED_AT = 1e6
"""Growth of an estimated residual over that at the start and that of x = 0 which ends a solve."""

TINY = 1e-150
"""Norms below are sums of squares that have underflowed, if they are not zero."""

Progress = Callable[[int, Vector], None]
"""Called after each iteration with its number and the estimated relative residuals ``[N]``."""


class ReliableIteration:
    """One solve: x, the true residual norms of all right-hand sides, and the columns that are being iterated.

    residual: of those columns; there is none while a recurrence or a deflation has it (`_hand_over`).
    """

    def __init__(
        self,
        solver: ReliableUpdates,
        A: LinearOperator,
        b: Array,
        x0: Array | None,
        progress: Progress | None,
        deflate: Correction | None,
    ) -> None:
        self.solver, self.A, self.b, self.progress = solver, A, b, progress
        self.source = column_norms(b)
        self._refuse_underflow()
        self.scale = np.where(self.source > 0, self.source, 1)
        self.target = solver.tolerance * self.source
        self.unit = np.ones_like(self.source)
        self.norms = self.source.copy()
        self.corrections = CorrectionSchedule(deflate, solver.endures, self.source.size)
        self.iterations = self.matvecs = self.replacements = 0
        self.suspected = False
        self.columns = np.arange(b.shape[-1])
        self._start(x0)
        self.least = LeastResidual(self.norms)
        self._deflate()
        self.largest = np.maximum(self.norms, self.source)
        self.history = [self.relative(self.norms)]

    def run(self, begin: Begin) -> SolveStatus:
        """Iterate to the end; x, norms, history and counts are then final."""
        A = self._inner_operator()
        mixed = A is not self.A or self.solver.inner == "half"  # which A in single precision takes, too
        recurrence: Recurrence | None = None
        limit = self.solver.max_iterations if self.solver.forgets else None
        stagnation, narrowed = Stagnation(self.norms, math.prod(self.A.shape), limit), self._narrow()
        while np.isfinite(self.norms).all():
            if not self.open.any():
                return SolveStatus.CONVERGED
            if self.iterations >= self.solver.max_iterations:
                return SolveStatus.ITERATION_LIMIT
            if stagnation.over(self.iterations, self.suspected):
                return SolveStatus.STAGNATED
            before, fresh = self.norms.copy(), recurrence is None
            try:
                if recurrence is None:
                    recurrence = begin(A, *self._scaled(), None)
                elif narrowed is None:
                    recurrence.replace(*self._scaled())
                else:
                    directions = recurrence.directions(narrowed)
                    recurrence = None  # its fields are free before there are others
                    recurrence = begin(A, *self._scaled(), directions)
                    del directions
                estimate = self._cycle(recurrence, self._delta(mixed), self._rest(mixed, A.dtype))
            except BreakdownError as breakdown:
                if fresh or recurrence is None or breakdown.status in FINAL:
                    return self._break_off(recurrence, breakdown.status)
                self._absorb(recurrence.correction)  # the residual may lie in the span of old directions
                recurrence, narrowed = None, self._narrow()
                continue
            self._absorb(recurrence.correction)
            shown = before.copy()
            shown[self.columns] = self._in_norm_of_residual(recurrence, estimate)
            rounded = stagnation.enter(before, shown, self.norms, self.target, self.iterations)
            self.suspected |= rounded and not mixed
            if self.suspected:
                self._restore()
            self._deflate(estimate)
            narrowed = self._narrow()
        return SolveStatus.NOT_FINITE

    def _inner_operator(self) -> LinearOperator:
        """The operator in the precision of the recurrence."""
        if self.solver.inner == "single":
            return self.A.astype(np.complex64)
        if self.solver.inner is None:
            return self.A
        return self.solver.in_half(self.A)

    def solution(self, status: SolveStatus, seconds: float) -> Solution:
        """Solution with its residuals, this status and duration; zero where what there is is worse."""
        self._restore()
        worse = ~(self.norms <= self.source)
        if worse.any():
            lane_blas.lane_clear(self.x, np.flatnonzero(worse))
            self.norms = np.where(worse, self.source, self.norms)
        return Solution(
            self.x,
            status,
            self.iterations,
            self.relative(self.norms),
            np.stack(self.history),
            self.matvecs,
            seconds,
            {"replacements": self.replacements, "deflations": self.corrections.made},
        )

    def relative(self, norms: Vector) -> Vector:
        """Norms ``[N]`` relative to those of b; where b is zero as they are."""
        with np.errstate(invalid="ignore"):  # infinite right-hand sides: reported as NOT_FINITE
            return norms / self.scale

    @property
    def open(self) -> NDArray[np.bool_]:
        """Right-hand sides whose true residual misses the tolerance, bool ``[N]``."""
        return ~(self.norms <= self.target)

    def _start(self, x0: Array | None) -> None:
        if x0 is None:
            self.x = zeros_like(self.b)
            self.residual = copied(self.b)
            return
        self.x = copied(x0)
        lane_blas.lane_clear(self.x, np.flatnonzero(self.source == 0))
        self._measure()

    def _refuse_underflow(self) -> None:
        """Raise InputError for right-hand sides that are not zero, of whose norms little is left."""
        small = np.flatnonzero(self.source < TINY)
        if small.size and self.b.dtype == np.complex128:
            columns = lane_blas.lane_take(self.b, small)
            block_blas.scale(columns, 1 / TINY, columns)
            for number in small[column_norms(columns) > 0]:
                raise InputError(
                    f"right-hand side {number} is so small that its squares underflow: scale it, and the "
                    "solution back"
                )

    def _measure(self) -> None:
        """Step 1: the true residual b - A x of the block's columns, and its norms."""
        residual = self.A.apply(self._block_of(self.x))
        block_blas.difference(self._block_of(self.b), residual, residual)
        self.residual = residual
        self.norms[self.columns] = column_norms(residual)
        self.matvecs += self.columns.size

    def _hand_over(self) -> Array:
        residual = self.residual
        del self.residual
        return residual

    def _scaled(self) -> tuple[Array, Vector]:
        """Step 2: the true residual, scaled, and the norms to reach.

        Each column times a power of two that brings its norm near one, because squares of small residuals
        would underflow in single precision.
        """
        residual = self._hand_over()
        self.unit = self._units()
        lane_blas.lane_scale(residual, to_device_like(1 / self.unit, residual), residual)
        return residual, SAFETY * self.target[self.columns] / self.unit

    def _cycle(self, recurrence: Recurrence, delta: float, rest: Rest) -> Vector:
        """Step 3: iterate until the residual wants replacing; the estimated norms of the block's columns.

        Iterations that are under way then count like any other, unless every column has converged: they
        change nothing any more.
        """
        ceiling = self.norms[self.columns]
        target = SAFETY * self.target[self.columns]
        diverged, scale = DIVERGED_AT * self.largest[self.columns], self.scale[self.columns]
        burst = recurrence if isinstance(recurrence, Unattended) and recurrence.unattended else None
        under_way, ending = 0, False
        while under_way or not ending:
            left = self.solver.max_iterations - self.iterations
            if burst is None:
                limit = min(1 + recurrence.lag, left)
                while under_way < limit and not ending:
                    self.matvecs += recurrence.start()
                    under_way += 1
                estimate = least = greatest = recurrence.estimate() * self.unit
                under_way -= 1
                self._record(estimate / scale)
            else:
                estimates = burst.run(left if self.progress is None else 1, delta) * self.unit
                estimate, least, greatest = estimates[-1], estimates.min(axis=0), estimates.max(axis=0)
                self.matvecs += estimates.size
                for relative in estimates / scale:
                    self._record(relative)
            if np.count_nonzero(greatest > diverged):
                raise BreakdownError(SolveStatus.DIVERGED)
            still_open = estimate > target
            count = int(np.count_nonzero(still_open))
            if count == 0:
                break
            if delta > 0:
                ceiling = ceiling if self.suspected else np.maximum(ceiling, greatest)
                ending |= bool(np.count_nonzero(still_open & (estimate < delta * ceiling)))
            ending |= (
                self.iterations >= self.solver.max_iterations
                or rest.after(self.iterations, least, still_open)
                or recurrence.full
                or (self.solver.narrows and next_width(count, target.size) < target.size)
            )
        return estimate

    def _delta(self, mixed: bool) -> float:
        """Fall of a residual that asks for its next replacement; 0 for one at the end alone."""
        if self.suspected:
            return self.solver.update_at
        delta = self.solver.fall
        if mixed:
            return delta
        return max(delta, self.corrections.replaced_at) if self.corrections.go_on else 0.0

    def _record(self, relative: Vector) -> None:
        self.iterations += 1
        row = self.history[-1].copy()
        row[self.columns] = relative
        self.history.append(row)
        if self.progress is not None:
            self.progress(self.iterations, row)

    def _absorb(self, correction: Array) -> None:
        """Step 4: x += y, in the units of x, then the true residual."""
        self._add(correction, self.unit)
        self.replacements += 1
        self._measure()
        self._note_least(correction, self.unit)

    def _note_least(self, correction: Array, unit: Vector) -> None:
        """Note the norms, and where this correction has raised them, x without it."""
        risen = self.least.enter(self.norms, self.open, self.x)
        self.least.take_back(risen, correction, unit, self.columns)

    def _restore(self) -> None:
        """The x of the least true residuals, and these."""
        if self.least.restore(self.x):
            self._measure()
            self.least.enter(self.norms, self.norms < 0, self.x)

    def _rest(self, mixed: bool, dtype: np.dtype) -> Rest:
        """A watch over the next cycle."""
        norms = self.least.norms[self.columns]
        if mixed or self.corrections.go_on or self.replacements:
            return Rest(norms, np.inf if self.solver.fall else 0.0)  # corrections have no middle
        return Rest.at_rounding(norms, dtype)

    def _in_norm_of_residual(self, recurrence: Recurrence, estimate: Vector) -> Vector:
        """An estimate of now as a norm of the residual, if it is another field's."""
        if not isinstance(recurrence, Indirect):
            return estimate
        unit, residual = self._units(), copied(self.residual)
        lane_blas.lane_scale(residual, to_device_like(1 / unit, residual), residual)
        believed = unit * recurrence.believed(residual)
        return estimate * self.norms[self.columns] / np.where(believed > 0, believed, 1)

    def _break_off(self, recurrence: Recurrence | None, status: SolveStatus) -> SolveStatus:
        if recurrence is not None and status not in FINAL:
            self._absorb(recurrence.correction)
        return status if self.open.any() else SolveStatus.CONVERGED

    def _deflate(self, estimate: Vector | None = None) -> None:
        """Correct the block in the subspace where a column is due; then the true residual again.

        Due are columns that have fallen far enough since the last time, and those whose residual is not what
        the recurrence believed. Columns that are done are left alone: inexact vectors may raise them.
        """
        if not (self.corrections.go_on and np.isfinite(self.norms).all()):
            return
        norms, still_open, unit = self.norms[self.columns], self.open[self.columns], self._units()
        due = self.corrections.due(norms, self.columns)
        if estimate is not None:
            due |= norms > 2 * estimate
        if not (due & still_open).any():
            return
        residual = self._hand_over()
        lane_blas.lane_scale(residual, to_device_like(still_open / unit, residual), residual)
        correction = self.corrections.of(residual, norms / unit, self.target[self.columns] / unit)
        del residual
        if correction is not None:
            self._add(correction, unit)
        self._measure()
        if correction is not None:
            self._note_least(correction, unit)
        self.corrections.enter(self.norms[self.columns], self.columns)

    def _narrow(self) -> NDArray[np.intp] | None:
        """Leave converged columns out if a narrower block holds the others; positions of those that stay."""
        unfinished = self.open[self.columns]
        width = next_width(int(unfinished.sum()), self.columns.size)
        if not self.solver.narrows or width == self.columns.size:
            return None
        staying = np.sort(np.argsort(~unfinished, kind="stable")[:width])
        self.columns = self.columns[staying]
        self.residual = lane_blas.lane_take(self.residual, staying)
        return staying

    def _units(self) -> Vector:
        """Powers of two that bring the norms of the block's columns near one."""
        norms = self.norms[self.columns]
        return np.exp2(np.floor(np.log2(np.where(norms > 0, norms, 1))))

    def _block_of(self, field: Array) -> Array:
        whole = self.columns.size == field.shape[-1]
        return field if whole else lane_blas.lane_take(field, self.columns)

    def _add(self, correction: Array, unit: Vector) -> None:
        """``x += unit correction`` in the block's columns."""
        factor = to_device_like(unit, correction)
        if self.columns.size == self.source.size:
            lane_blas.lane_add(self.x, correction, factor)
        else:
            lane_blas.lane_put_add(self.x, correction, self.columns, factor)

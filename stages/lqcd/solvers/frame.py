"""Reliable updates: an inner recurrence for a correction, an outer true residual.

The recurrence (CG, BiCGstab, GCR, ...) works on A y = r, possibly in lower precision:

    1  r = b - A x                 in the precision of b; done where |r| <= tolerance |b| for all columns
    2  hand r to the recurrence    which starts again at y = 0 and keeps its search directions
    3  iterate                     until the estimates are below the tolerance, or r is to be replaced
    4  x += y, and 1 again

("reliable updates"; Sleijpen and van der Vorst, Computing 56 (1996) 141.) In one precision step 3 ends when
the recurrence believes to have converged; with a single-precision recurrence, and in a deflated solve, also
when the residual of any right-hand side has fallen by the method's `update_at` since the last time. True
residuals alone finish a solve (`stages.lqcd.solvers.recurrence` has the rules). Where rounding has been seen
to hold up a solve in one precision, the residual is replaced as often as in mixed precision, and what raises
it is taken back. A solve that misses the tolerance gives the x of the least residuals.

A deflated solve corrects x by what a subspace says of the true residual, at the start and at replacements:
x += V (V^H A V)^-1 V^H (b - A x). Low modes that rounding or inexact vectors have let grow are gone again,
also in double precision, where vectors stored in single would otherwise help only at the beginning
(`stages.lqcd.solvers.space`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import LinearOperator, Storage, half_storage, whole_storage
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import copied, zeros_like
from stages.lqcd.solvers.recurrence import (
    DIVERGED_AT,
    SAFETY,
    Begin,
    BreakdownError,
    Cycle,
    End,
    LeastResidual,
    Plateau,
    Recurrence,
    StopRules,
    column_norms,
    next_width,
)
from stages.lqcd.solvers.solution import Progress, Solution, SolveStatus, Vector
from stages.lqcd.solvers.space import Correction, CorrectionSchedule

MAX_ITERATIONS = 200_000
"""Limit of a solve unless another is given. Conjugate gradients on HISQ links, |D| < 4.8, take at most
1.2 / m log(5 / (m tolerance)) iterations: 66,000 at m = 0.0005 to 1e-8, 200,000 at m = 0.0002 to 1e-10.
"""

PRECISIONS = ("double", "double-single", "double-half")
"""Of residuals and of the recurrence, as solvers and parameter files name them; for b in complex64 "double"
is single throughout.
"""

TINY = 1e-150
"""Norms below are sums of squares that have underflowed, if they are not zero."""


@dataclass(frozen=True)
class ReliableUpdates:
    """Frozen configuration of a solve: when it ends, and in what precision it iterates.

    tolerance: on the true |b - A x| / |b| of every right-hand side. max_iterations: of the whole solve.
    precision: 'double' iterates in that of b. 'double-single' iterates in complex64 with reliable updates in
    that of b, 'double-half' with fields in about 16 bits, which batched CG can on staggered operators and on
    the normal equations of even-odd Wilson ones, and BiCGstab and GCR on the latter.
    delta: the fall of a residual, from its largest norm after a replacement, that asks for the next in
    mixed precision; None: the method's own.
    """

    tolerance: float = 1e-10
    max_iterations: int = MAX_ITERATIONS
    precision: str = PRECISIONS[0]
    delta: float | None = None

    narrows: ClassVar[bool] = False
    """Whether converged columns are to be taken out as soon as a narrower block holds the others."""

    update_at: ClassVar[float] = 0.0
    """Fall of a residual that asks for its next replacement in single precision and in deflated solves."""

    forgets: ClassVar[bool] = False
    """Whether every replacement ends a method's search directions, so that it falls at an even rate."""

    half_storages: ClassVar[tuple[type[Storage], ...]] = ()
    """Storages in half precision that the method can work with; `half_is_for` says of which operators."""

    half_is_for: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        check_whole("max_iterations", self.max_iterations, 1)
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.half and not self.half_storages:
            raise InputError(
                f"precision 'double-half' is for BatchedCG, BiCGstab and GCR: give {type(self).__name__} "
                "'double-single'"
            )
        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta must lie between 0 and 1, got {self.delta}")

    @property
    def half(self) -> bool:
        """True if the recurrence is in half precision."""
        return self.precision == "double-half"

    def storage(self, A: LinearOperator) -> Storage:
        """The fields of the recurrence and their product. Raises InputError where there are none in half."""
        if not self.half:
            return whole_storage(A if self.precision == "double" else A.astype(np.complex64))
        storage = half_storage(A)
        if not isinstance(storage, self.half_storages):
            raise InputError(
                f"half precision of {self.half_is_for}, not for {type(A).__name__}: "
                "iterate in 'double-single'"
            )
        return storage

    @property
    def fall(self) -> float:
        """Fall of a residual that asks for its next replacement: `delta`, or the method's own."""
        return self.delta or self.update_at

    def tolerates(self, relative: float, reduction: float, share: float, first: bool) -> bool:
        """True if a correction in a deflation space (`space.CorrectionSchedule`) saves more than it costs."""
        return relative <= 1


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
        _refuse_underflow(b, self.source)
        self.scale = np.where(self.source > 0, self.source, 1)
        self.target = solver.tolerance * self.source
        self.unit = np.ones_like(self.source)
        self.norms = self.source.copy()
        self.corrections = CorrectionSchedule(deflate, solver.tolerates, self.source.size)
        self.iterations = self.matvecs = self.replacements = 0
        self.columns = np.arange(b.shape[-1])
        if x0 is None:
            self.x, self.residual = zeros_like(b), copied(b)
        else:
            self.x = copied(x0)
            lane_blas.lane_clear(self.x, np.flatnonzero(self.source == 0))
            self._measure()
        self.best = LeastResidual(self.norms)
        self._deflate()
        self.largest = np.maximum(self.norms, self.source)
        self.history = [self._relative(self.norms)]
        unknowns = math.prod(A.shape)
        self.rules = StopRules(self.norms, self.target, solver.max_iterations, unknowns, solver.forgets)

    def run(self, begin: Begin) -> SolveStatus:
        """Iterate to the end; x, norms, history and counts are then final."""
        storage = self.solver.storage(self.A)
        mixed = storage.operator is not self.A or self.solver.half  # which A in single precision takes, too
        recurrence: Recurrence | None = None
        narrowed = self._narrow()
        while (status := self.rules.status(self.norms, self.iterations)) is None:
            before, fresh = self.norms.copy(), recurrence is None
            try:
                if recurrence is None:
                    recurrence = begin(storage, *self._scaled(), None)
                elif narrowed is None:
                    recurrence.replace(*self._scaled())
                else:
                    directions = recurrence.directions(narrowed)
                    recurrence = None  # its fields are free before there are others
                    recurrence = begin(storage, *self._scaled(), directions)
                    del directions
                estimate = self._cycle(recurrence, self._cycle_rules(mixed, storage.operator.dtype))
            except BreakdownError as breakdown:
                useful = recurrence is not None and not breakdown.useless
                if recurrence is not None and useful:  # the residual may lie in the span of old directions
                    self._replace(recurrence)
                if fresh or not useful:
                    return breakdown.status if self.open.any() else SolveStatus.CONVERGED
                recurrence, narrowed = None, self._narrow()
                continue
            self._replace(recurrence)
            shown = before.copy()
            shown[self.columns] = self._in_norm_of_residual(recurrence, estimate)
            self.rules.replaced(before, shown, self.norms, self.iterations, mixed)
            if self.rules.rounding_seen:
                self._restore()
            self._deflate(estimate)
            narrowed = self._narrow()
        return status

    def solution(self, status: SolveStatus, seconds: float) -> Solution:
        """Solution with its residuals, this status and duration; zero where what there is is worse."""
        self._restore()
        worse = ~(self.norms <= self.source)
        if worse.any():
            lane_blas.lane_clear(self.x, np.flatnonzero(worse))
            self.norms = np.where(worse, self.source, self.norms)
        history, residual = np.stack(self.history), self._relative(self.norms)
        counts = {"replacements": self.replacements, "deflations": self.corrections.made}
        return Solution(self.x, status, self.iterations, residual, history, self.matvecs, seconds, counts)

    def _relative(self, norms: Vector) -> Vector:
        """Norms ``[N]`` relative to those of b; where b is zero as they are."""
        with np.errstate(invalid="ignore"):  # infinite right-hand sides: reported as NOT_FINITE
            return norms / self.scale

    @property
    def open(self) -> NDArray[np.bool_]:
        """Right-hand sides whose true residual misses the tolerance, bool ``[N]``."""
        return ~(self.norms <= self.target)

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

    def _cycle_rules(self, mixed: bool, dtype: np.dtype) -> Cycle:
        """The rules of the next cycle, of a recurrence in this precision."""
        solver, columns, rounding = self.solver, self.columns, self.rules.rounding_seen
        deflated, least = self.corrections.active, self.best.norms[self.columns]
        if rounding:
            delta = solver.update_at
        elif mixed:
            delta = solver.fall
        else:
            delta = max(solver.fall, self.corrections.replaced_at) if deflated else 0.0
        if mixed or deflated or self.replacements:
            plateau = Plateau(least, np.inf if solver.fall else 0.0)  # other corrections have no middle
        else:
            plateau = Plateau.at_rounding(least, dtype)
        target, diverged = SAFETY * self.target[columns], DIVERGED_AT * self.largest[columns]
        limits = solver.narrows, solver.max_iterations
        return Cycle(target, self.norms[columns], diverged, delta, rounding, *limits, plateau)

    def _cycle(self, recurrence: Recurrence, rules: Cycle) -> Vector:
        """Step 3: iterate until the residual wants replacing; the estimated norms of the block's columns.

        Iterations that are under way then count like any other, unless every column has converged: they
        change nothing any more.
        """
        under_way, ends, scale = 0, False, self.scale[self.columns]
        while under_way or not ends:
            limit = min(1 + recurrence.lag, self.solver.max_iterations - self.iterations)
            while under_way < limit and not ends:
                self.matvecs += recurrence.start()
                under_way += 1
            estimate = recurrence.estimate() * self.unit
            under_way -= 1
            self._record(estimate / scale)
            end = rules.end(self.iterations, estimate, recurrence.full)
            if end is End.CONVERGED:
                break
            ends = ends or end is End.REPLACE
        return estimate

    def _record(self, relative: Vector) -> None:
        self.iterations += 1
        row = self.history[-1].copy()
        row[self.columns] = relative
        self.history.append(row)
        if self.progress is not None:
            self.progress(self.iterations, row)

    def _replace(self, recurrence: Recurrence) -> None:
        self.replacements += 1
        self._absorb(recurrence.correction, self.unit)

    def _absorb(self, correction: Array, unit: Vector) -> None:
        """Step 4: x += y in these units, then the true residual; where it has risen, x without y is noted."""
        self._add(correction, unit)
        self._measure()
        risen = self.best.enter(self.norms, self.open, self.x)
        self.best.take_back(risen, correction, unit, self.columns)

    def _restore(self) -> None:
        """The x of the least true residuals, and these."""
        if self.best.restore(self.x):
            self._measure()
            self.best.enter(self.norms, self.norms < 0, self.x)

    def _in_norm_of_residual(self, recurrence: Recurrence, estimate: Vector) -> Vector:
        """An estimate of now as a norm of the residual, if it is another field's."""
        if not hasattr(recurrence, "believed"):
            return estimate
        unit, residual = self._units(), copied(self.residual)
        lane_blas.lane_scale(residual, to_device_like(1 / unit, residual), residual)
        believed = unit * recurrence.believed(residual)
        return estimate * self.norms[self.columns] / np.where(believed > 0, believed, 1)

    def _deflate(self, estimate: Vector | None = None) -> None:
        """Correct the block in the subspace where a column is due; then the true residual again.

        Due are columns that have fallen far enough since the last time, and those whose residual is not what
        the recurrence believed. Columns that are done are left alone: inexact vectors may raise them.
        """
        if not (self.corrections.active and np.isfinite(self.norms).all()):
            return
        norms, still_open, unit = self.norms[self.columns], self.open[self.columns], self._units()
        due = self.corrections.due(norms, self.columns)
        if estimate is not None:
            due |= norms > 2 * estimate
        if not (due & still_open).any():
            return
        residual = self._hand_over()
        lane_blas.lane_scale(residual, to_device_like(still_open / unit, residual), residual)
        correction = self.corrections.correct(residual, norms / unit, self.target[self.columns] / unit)
        del residual
        if correction is None:
            self._measure()
        else:
            self._absorb(correction, unit)
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


def _refuse_underflow(b: Array, norms: Vector) -> None:
    """Raise InputError for right-hand sides that are not zero, of whose norms little is left."""
    small = np.flatnonzero(norms < TINY)
    if small.size and b.dtype == np.complex128:
        columns = lane_blas.lane_take(b, small)
        block_blas.scale(columns, 1 / TINY, columns)
        for number in small[column_norms(columns) > 0]:
            raise InputError(
                f"right-hand side {number} is so small that its squares underflow: scale it, and the "
                "solution back"
            )

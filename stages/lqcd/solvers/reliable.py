"""The frame of the Krylov solvers: an inner recurrence for a correction, an outer true residual.

The recurrence (CG, BiCGstab, GCR, ...) works on A y = r, possibly in lower precision. From time to time its y
is added to x and its residual is replaced by b - A x, recomputed in the precision of b, while it keeps its
search directions ("reliable update"; Sleijpen and van der Vorst, Computing 56 (1996) 141). In one precision
that happens when the recurrence believes to have converged; with a single-precision recurrence, and in a
deflated solve, also whenever the residual of any right-hand side has fallen by the method's `update_at` since
the last time. True residuals alone finish a solve.

A deflated solve corrects x by what a subspace says of the true residual, at the start and at replacements:
x += V (V^H A V)^-1 V^H (b - A x). Low modes that rounding or inexact vectors have let grow are gone again,
also in double precision, where vectors stored in single would otherwise help only at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array, Kernels, array_module, to_device_like, to_host
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence, Vector
from stages.lqcd.solvers.solution import Status

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""Widths that a block shrinks to: few, because kernels are compiled for each."""

SAFETY = 0.999
"""The recurrence aims at this part of the tolerance, so that rounding alone does not cost another cycle."""

STALLED_CYCLES = 3
"""So many cycles in a row whose true residuals neither follow the estimates nor halve are the end."""

DIVERGED_AT = 1e6
"""Growth of an estimated residual over that at the start and that of x = 0 which ends a solve."""

DEFLATE_AT = 1e-2
"""Fall of a true residual after which the block is deflated again. At each replacement would double the
products with the vectors and save no iteration; with vectors in half precision batched CG needs up to 1.3
times the iterations at 1e-3, and up to 2.7 times at 1e-4.
"""

Progress = Callable[[int, Vector], None]
"""Called after each iteration with its number and the estimated relative residuals ``[N]``."""

Deflate = Callable[[Array], Array]
"""An approximate y of A y = r for a block of residuals r, exact in a subspace."""


def next_width(needed: int, width: int) -> int:
    """The narrowest of `WIDTHS` and `width` that holds `needed` columns."""
    return min(w for w in (*WIDTHS, width) if w >= needed)


def column_norms(kernels: Kernels, field: Array) -> Vector:
    """|field| of each right-hand side, float64 ``[N]`` on the host."""
    return np.sqrt(to_host(kernels.block_blas.norms2(field)))


class ReliableIteration:
    """One solve: x, the true residual norms of all right-hand sides, and the columns that are being iterated.

    The arguments are those of `KrylovSolver` and its `solve`.
    """

    def __init__(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None,
        *,
        kernels: Kernels,
        tolerance: float,
        max_iterations: int,
        progress: Progress | None,
        deflate: Deflate | None = None,
    ) -> None:
        self.A, self.b, self.kernels = A, b, kernels
        self.max_iterations, self.progress, self.deflate = max_iterations, progress, deflate
        self.source = column_norms(kernels, b)
        self.scale = np.where(self.source > 0, self.source, 1)
        self.target = tolerance * self.source
        self.residual: Array = None
        self.unit = np.ones_like(self.source)
        self.norms = self.source.copy()
        self.deflated = np.full_like(self.source, np.inf)  # norms after the last deflation
        self.iterations = self.matvecs = self.replacements = self.deflations = 0
        self.columns = np.arange(b.shape[-1])
        self._start(x0)
        self._deflate()
        self.largest = np.maximum(self.norms, self.source)
        self.history = [self.relative(self.norms)]

    def run(self, recurrence: Recurrence, delta: float) -> Status:
        """Iterate to the end; x, norms, history and counts are then final.

        delta: fall of a residual, since its largest norm after the last replacement, that asks for the next.
        """
        stalled, best, kept = 0, self.norms.copy(), self._narrow(recurrence.narrows)
        while np.isfinite(self.norms).all():
            if not self.open.any():
                return Status.CONVERGED
            if stalled == STALLED_CYCLES:
                return Status.STAGNATED
            if self.iterations >= self.max_iterations:
                return Status.ITERATION_LIMIT
            still_open = self.open
            try:
                self._replace(recurrence, kept)
                estimate = self._cycle(recurrence, delta)
            except BreakdownError as breakdown:
                return self._break_off(recurrence, breakdown.status)
            self._absorb(recurrence.correction)
            stalled = 0 if self._gained(best, still_open) or self._follows(estimate) else stalled + 1
            best = np.minimum(best, self.norms)
            self._deflate(estimate)
            kept = self._narrow(recurrence.narrows)
        return Status.NOT_FINITE

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
            self.x = array_module(self.b).zeros_like(self.b)
            self.residual = self.b.copy()
            return
        self.x = x0.copy()
        self.x[..., np.flatnonzero(self.source == 0)] = 0
        self._measure()

    def _deflate(self, estimate: Vector | None = None) -> None:
        """Correct the block in the subspace where a column is due; then the true residual again.

        Due are columns that have fallen by `DEFLATE_AT` since the last time, and those whose residual is not
        what the recurrence believed. Columns that are done are left alone: inexact vectors may raise them.
        """
        if self.deflate is None or not np.isfinite(self.norms).all():
            return
        norms, still_open, unit = self.norms[self.columns], self.open[self.columns], self._units()
        due = norms < DEFLATE_AT * self.deflated[self.columns]
        if estimate is not None:
            due |= norms > 2 * estimate
        if not (due & still_open).any():
            return
        residual, self.residual = self.residual, None
        residual *= to_device_like(still_open / unit, residual)
        correction = self.deflate(residual)
        self._add(correction * to_device_like(unit.astype(correction.real.dtype), correction))
        del residual, correction
        self.deflations += 1
        self._measure()
        self.deflated[self.columns] = self.norms[self.columns]

    def _units(self) -> Vector:
        """Powers of two that bring the norms of the block's columns near one."""
        norms = self.norms[self.columns]
        return np.exp2(np.floor(np.log2(np.where(norms > 0, norms, 1))))

    def _measure(self) -> None:
        """The true residual b - A x of the block's columns, and its norms."""
        residual = self.A.apply(self._block_of(self.x))
        array_module(residual).subtract(self._block_of(self.b), residual, out=residual)
        self.residual = residual
        self.norms[self.columns] = column_norms(self.kernels, residual)
        self.matvecs += self.columns.size

    def _block_of(self, field: Array) -> Array:
        whole = self.columns.size == field.shape[-1]
        return field if whole else array_module(field).take(field, self.columns, axis=-1)

    def _replace(self, recurrence: Recurrence, kept: NDArray[np.intp] | None) -> None:
        """Hand the true residual over, each column times a power of two that brings its norm near one:
        squares of small residuals would underflow in single precision.
        """
        residual, self.residual = self.residual, None
        self.unit = self._units()
        residual *= to_device_like(1 / self.unit, residual)
        recurrence.replace(residual, SAFETY * self.target[self.columns] / self.unit, kept)

    def _cycle(self, recurrence: Recurrence, delta: float) -> Vector:
        """Iterate until the residual wants replacing; the estimated norms of the block's columns.

        Iterations that are under way then count like any other, unless every column has converged: they
        change nothing any more.
        """
        ceiling = self.norms[self.columns]
        target = self.target[self.columns]
        under_way, ending = 0, False
        while under_way or not ending:
            limit = min(1 + recurrence.lag, self.max_iterations - self.iterations)
            while under_way < limit and not ending:
                self.matvecs += recurrence.width
                recurrence.start()
                under_way += 1
            estimate = recurrence.estimate() * self.unit
            under_way -= 1
            self._record(estimate)
            ceiling = np.maximum(ceiling, estimate)
            if (estimate > DIVERGED_AT * self.largest[self.columns]).any():
                raise BreakdownError(Status.DIVERGED)
            still_open = estimate > SAFETY * target
            count = int(still_open.sum())
            if count == 0:
                break
            ending |= (
                self.iterations >= self.max_iterations
                or recurrence.full
                or (recurrence.narrows and next_width(count, target.size) < target.size)
                or bool((still_open & (estimate < delta * ceiling)).any())
            )
        return estimate

    def _record(self, estimate: Vector) -> None:
        self.iterations += 1
        row = self.history[-1].copy()
        row[self.columns] = estimate / self.scale[self.columns]
        self.history.append(row)
        if self.progress is not None:
            self.progress(self.iterations, row)

    def _absorb(self, correction: Array) -> None:
        """x += y, in the units of x, then the true residual."""
        self._add(correction * to_device_like(self.unit, correction))
        self.replacements += 1
        self._measure()

    def _add(self, correction: Array) -> None:
        """x += correction in the block's columns."""
        if self.columns.size == self.source.size:
            self.x += correction
        else:
            self.x[..., self.columns] += correction

    def _break_off(self, recurrence: Recurrence, status: Status) -> Status:
        if status not in (Status.NOT_FINITE, Status.DIVERGED):
            self._absorb(recurrence.correction)
        return status if self.open.any() else Status.CONVERGED

    def _gained(self, best: Vector, still_open: NDArray[np.bool_]) -> bool:
        """Whether a right-hand side was finished or has halved its best residual."""
        return bool((still_open & (~self.open | (self.norms < 0.5 * best))).any())

    def _follows(self, estimate: Vector) -> bool:
        """Whether true residuals that miss the tolerance are what the recurrence believed, or twice that."""
        missed = self.open[self.columns]
        return bool((self.norms[self.columns] < 2 * estimate)[missed].all())

    def _narrow(self, wanted: bool) -> NDArray[np.intp] | None:
        """Leave converged columns out if a narrower block holds the others; positions of those that stay."""
        unfinished = self.open[self.columns]
        width = next_width(int(unfinished.sum()), self.columns.size)
        if not wanted or width == self.columns.size:
            return None
        kept = np.sort(np.argsort(~unfinished, kind="stable")[:width])
        self.columns = self.columns[kept]
        self.residual = array_module(self.residual).take(self.residual, kept, axis=-1)
        return kept

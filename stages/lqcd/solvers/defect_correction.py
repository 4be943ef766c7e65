"""Defect correction (iterative refinement): any solver in low precision, its errors corrected in high.

    r = b - A x,   solve A y = r in complex64 to the solver's own tolerance,   x += y

(R. S. Martin, G. Peters, J. H. Wilkinson, Numer. Math. 8 (1966) 203; for Wilson quarks arXiv:0911.3191,
section 5.) Each correction begins a new Krylov space: reliable updates (`inner='single'`) keep theirs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, Solver
from stages.lqcd.kernels.dispatch import Array, Kernels, array_module, kernels_for, to_device_like
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.solvers.krylov import check_system
from stages.lqcd.solvers.recurrence import Vector
from stages.lqcd.solvers.reliable import STALLED_CYCLES, Progress, column_norms
from stages.lqcd.solvers.solution import NotConverged, Solution, Status


@dataclass(frozen=True)
class DefectCorrection:
    """A solver of the precision of b around one of complex64.

    solver: makes the corrections, each to its own tolerance, which should be loose (1e-1 to 1e-4).
    tolerance: on the true |b - A x| / |b| of every right-hand side. max_iterations: of all corrections.
    """

    solver: Solver
    tolerance: float = 1e-10
    max_iterations: int = 10_000
    kernels: Kernels | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations must be at least 1, got {self.max_iterations}")

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
    ) -> Solution:
        """The solution of A x = b, as `KrylovSolver.solve`; `extras` counts the corrections."""
        check_system(A, b, x0, on_failure)
        refinement = _Refinement(self, A, b, x0, progress)
        status = refinement.run()
        solution = refinement.solution(status)
        if status is not Status.CONVERGED and on_failure == "raise":
            raise NotConverged(solution, self.tolerance)
        return solution


class _Refinement:
    """One solve: x, the residual and its norms."""

    def __init__(
        self,
        method: DefectCorrection,
        A: LinearOperator,
        b: Array,
        x0: Array | None,
        progress: Progress | None,
    ) -> None:
        self.method, self.A, self.b, self.progress = method, A, b, progress
        self.kernels, self.single = method.kernels or kernels_for(b), A.astype(np.complex64)
        self.started = time.perf_counter()
        self.source = column_norms(self.kernels, b)
        self.scale = np.where(self.source > 0, self.source, 1)
        self.iterations = self.matvecs = self.corrections = 0
        self.x = array_module(b).zeros_like(b) if x0 is None else x0.copy()
        self.x[..., np.flatnonzero(self.source == 0)] = 0
        self._measure()
        self.history = [self.norms / self.scale]

    def run(self) -> Status:
        """Correct until every residual is below the tolerance or there is no gain any more."""
        stalled, best = 0, self.norms
        target = self.method.tolerance * self.source
        while np.isfinite(self.norms).all():
            still_open = self.norms > target
            if not still_open.any():
                return Status.CONVERGED
            if stalled == STALLED_CYCLES:
                return Status.STAGNATED
            if self.iterations >= self.method.max_iterations:
                return Status.ITERATION_LIMIT
            status = self._correct(still_open)
            if status not in (Status.CONVERGED, Status.ITERATION_LIMIT, Status.STAGNATED):
                return status
            stalled = 0 if (self.norms < 0.5 * best)[still_open].any() else stalled + 1
            best = np.minimum(best, self.norms)
        return Status.NOT_FINITE

    def solution(self, status: Status) -> Solution:
        return Solution(
            self.x,
            status,
            self.iterations,
            self.norms / self.scale,
            np.concatenate([np.atleast_2d(rows) for rows in self.history]),
            self.matvecs,
            time.perf_counter() - self.started,
            {"corrections": self.corrections},
        )

    def _measure(self) -> None:
        residual = self.A.apply(self.x)
        self.residual = array_module(residual).subtract(self.b, residual, out=residual)
        self.norms = column_norms(self.kernels, residual)
        self.matvecs += self.b.shape[-1]

    def _correct(self, still_open: NDArray[np.bool_]) -> Status:
        """x += y, computed for residuals near one, so that none underflows, and zero for those done."""
        unit = np.exp2(np.floor(np.log2(np.where(self.norms > 0, self.norms, 1))))
        self.residual *= to_device_like(still_open / unit, self.residual)
        single = self.residual.astype(np.complex64)
        inner = self.method.solver.solve(
            self.single, single, on_failure="return", progress=self._reporter(self.norms / self.scale)
        )
        if inner.status not in (Status.NOT_FINITE, Status.DIVERGED):
            self.x += inner.x * to_device_like(unit, inner.x)
        self.corrections += 1
        self.iterations += inner.iterations
        self.matvecs += inner.matvecs
        rows = inner.history[1:] * (self.norms / self.scale)
        rows[:, ~still_open] = (self.norms / self.scale)[~still_open]
        self.history.append(rows)
        self._measure()
        return inner.status

    def _reporter(self, size: Vector) -> Progress | None:
        """Reports of an inner solve in the numbers of the whole one."""
        progress, before = self.progress, self.iterations
        if progress is None:
            return None
        return lambda iteration, residuals: progress(before + iteration, size * residuals)

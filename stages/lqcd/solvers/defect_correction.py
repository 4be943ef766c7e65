"""Defect correction (iterative refinement): any solver in low precision, its errors corrected in high.

    r = b - A x,   solve A y = r in complex64 to the solver's own tolerance,   x += y

(R. S. Martin, G. Peters, J. H. Wilkinson, Numer. Math. 8 (1966) 203; for Wilson quarks arXiv:0911.3191,
section 5.) Each correction begins a new Krylov space: reliable updates ('double-single') keep theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, Storage
from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import converted
from stages.lqcd.solvers.frame import MAX_ITERATIONS, ReliableUpdates
from stages.lqcd.solvers.krylov import iterated
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence, column_norms
from stages.lqcd.solvers.solution import Solution, SolveOptions, Solver, SolveStatus, Vector

GOES_ON = (SolveStatus.CONVERGED, SolveStatus.ITERATION_LIMIT, SolveStatus.STAGNATED)
"""Ends of a correction after which another one may help."""


@dataclass(frozen=True)
class DefectCorrection:
    """A solver of the precision of b around one of complex64.

    solver: makes the corrections, each to its own tolerance, which should be loose (1e-1 to 1e-4).
    tolerance: on the true |b - A x| / |b| of every right-hand side. max_iterations: of all corrections.
    """

    solver: Solver
    tolerance: float = 1e-10
    max_iterations: int = MAX_ITERATIONS

    def __post_init__(self) -> None:
        ReliableUpdates(self.tolerance, self.max_iterations)  # which checks them

    def solve(self, A: LinearOperator, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """The solution of A x = b, as of a `KrylovSolver`; `replacements` in `extras` counts corrections.

        progress: called for the iterations of a correction when that is done.
        """
        limits = ReliableUpdates(self.tolerance, self.max_iterations, "double-single")
        return iterated(limits, self._begin, A, b, **options)

    def _begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        return _Corrections(self.solver, storage.operator, residual, target)


class _Corrections:
    """One correction at a time, whose iterations are handed out when it is done; y is what it gave."""

    lag = 0

    def __init__(self, solver: Solver, A: LinearOperator, residual: Array, target: Vector) -> None:
        self.solver, self.A = solver, A
        self.replace(residual, target)

    def replace(self, residual: Array, target: Vector) -> None:
        """Solve for this residual, of which columns that are done count as zero."""
        norms = column_norms(residual)
        lane_blas.lane_scale(residual, to_device_like((norms > target).astype(float), residual), residual)
        r = converted(residual, self.A.dtype)
        self.solution: Solution = self.solver.solve(self.A, r, on_failure="return")
        self.norms, self.iteration = norms, 0

    @property
    def full(self) -> bool:
        return self.iteration == self.solution.iterations and self.solution.status in GOES_ON

    @property
    def correction(self) -> Array:
        return self.solution.x

    def directions(self, columns: NDArray[np.intp]) -> None:
        """None are kept."""

    def start(self) -> int:
        return self.solution.matvecs if self.iteration == 0 else 0

    def estimate(self) -> Vector:
        if self.iteration == self.solution.iterations:
            raise BreakdownError(self.solution.status)
        self.iteration += 1
        return self.solution.history[self.iteration] * self.norms

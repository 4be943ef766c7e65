"""What the Krylov solvers share: configuration, checks of the system, the `Solution` at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array, Kernels, kernels_for
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.solvers.recurrence import Recurrence
from stages.lqcd.solvers.reliable import Deflate, Progress, ReliableIteration
from stages.lqcd.solvers.solution import NotConverged, Solution, Status


@dataclass(frozen=True)
class KrylovSolver:
    """Frozen configuration of a solver; that of conjugate gradients, unless it says which operators it takes.

    tolerance: on the true |b - A x| / |b| of every right-hand side. max_iterations: of the whole solve.
    inner: 'single' iterates in complex64 with reliable updates in the precision of b; None iterates in that
    of b. kernels: a kernel package, by default the one that belongs to b. delta: the fall of a residual, from
    its largest norm after a replacement, that asks for the next in mixed precision; None: the method's own.
    """

    tolerance: float = 1e-10
    max_iterations: int = 10_000
    inner: str | None = None
    kernels: Kernels | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations must be at least 1, got {self.max_iterations}")
        if self.inner not in (None, "single"):
            raise InputError(f"inner must be 'single', or None for the precision of b; got {self.inner!r}")

        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta must lie between 0 and 1, got {self.delta}")

    def check_operator(self, A: LinearOperator) -> None:
        """Raises InputError for an operator that the method is not made for."""
        if not (A.hermitian and A.positive_definite):
            raise InputError(
                "conjugate gradients need a Hermitian positive definite operator, "
                f"which {type(A).__name__} is not: solve its normal equations (NormalEquations), or use "
                "BiCGstab or GCR"
            )

    def recurrence(self, A: LinearOperator, kernels: Kernels) -> Recurrence:
        """The method itself, on an operator of the inner precision."""
        raise NotImplementedError

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
        deflate: Deflate | None = None,
    ) -> Solution:
        """The solution of A x = b for all right-hand sides: b is ``[*A.shape, N]`` in the dtype of A.

        x0: first guess, zero by default. on_failure: 'raise' NotConverged, or 'return' what there is, with
        its status. deflate: an approximate y of A y = r for low modes, of the true residual r at the start
        and after each replacement (`stages.lqcd.solvers.deflation`). Right-hand sides may be zero (giving
        zero) or linearly dependent. Raises InputError if the method cannot take A or if b or x0 does not fit
        it.
        """
        self.check_operator(A)
        return iterated(self, self.recurrence, A, b, x0, on_failure, progress, deflate)


def iterated(
    solver: KrylovSolver,
    method: Callable[[LinearOperator, Kernels], Recurrence],
    A: LinearOperator,
    b: Array,
    x0: Array | None = None,
    on_failure: str = "raise",
    progress: Progress | None = None,
    deflate: Deflate | None = None,
) -> Solution:
    """The solution of A x = b by a recurrence, with the tolerance, limits and precisions of a solver."""
    check_system(A, b, x0, on_failure)
    started = time.perf_counter()
    kernels = solver.kernels or kernels_for(b)
    iteration = ReliableIteration(
        A,
        b,
        x0,
        kernels=kernels,
        tolerance=solver.tolerance,
        max_iterations=solver.max_iterations,
        progress=progress,
        deflate=deflate,
    )
    inner = A.astype(np.complex64) if solver.inner == "single" else A
    recurrence = method(inner, kernels)
    often = inner.dtype != A.dtype or deflate is not None
    status = iteration.run(recurrence, (solver.delta or recurrence.update_at) if often else 0.0)
    solution = _solution(iteration, status, time.perf_counter() - started)
    if status is not Status.CONVERGED and on_failure == "raise":
        raise NotConverged(solution, solver.tolerance)
    return solution


def _solution(iteration: ReliableIteration, status: Status, seconds: float) -> Solution:
    return Solution(
        iteration.x,
        status,
        iteration.iterations,
        iteration.relative(iteration.norms),
        np.stack(iteration.history),
        iteration.matvecs,
        seconds,
        {"replacements": iteration.replacements, "deflations": iteration.deflations},
    )


def check_system(A: LinearOperator, b: Array, x0: Array | None, on_failure: str) -> None:
    """Raise InputError unless b, x0 are ``[*A.shape, N]`` of the dtype of A, and on_failure a choice."""
    if b.shape[:-1] != A.shape or b.dtype != A.dtype:
        raise InputError(f"b must be {A.dtype} {(*A.shape, 'N')} like the operator, got {b.dtype} {b.shape}")
    if x0 is not None and (x0.shape != b.shape or x0.dtype != b.dtype):
        raise InputError(f"x0 must be {b.dtype} {b.shape} like b, got {x0.dtype} {x0.shape}")
    if on_failure not in ("raise", "return"):
        raise InputError(f"on_failure must be 'raise' or 'return', got {on_failure!r}")

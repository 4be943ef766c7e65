"""The Krylov solvers: what their configurations share, and the solve itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, NoRoomError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas, stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import copied
from stages.lqcd.solvers.parts import solved_in_parts
from stages.lqcd.solvers.recurrence import WIDTHS, Begin, Recurrence, Vector
from stages.lqcd.solvers.reliable_solver import ReliableUpdates
from stages.lqcd.solvers.reliable_updates import Progress, ReliableIteration
from stages.lqcd.solvers.solution import NotConverged, Solution, SolveStatus, without
from stages.lqcd.solvers.space import Correction
from stages.lqcd.solvers.workspace import Workspace


@dataclass(frozen=True)
class KrylovSolver(ReliableUpdates):
    """Frozen configuration of a solver: of conjugate gradients, unless it says which operators it takes."""

    workspace: ClassVar[Workspace] = Workspace(host=10, double=9.2, mixed=7.6)
    """Of conjugate gradients, batched or as one block; on a GPU measured at 24^4, N = 16 and 32: 8.6 to 8.8
    and 7.4 to 8.6."""

    def check_operator(self, A: LinearOperator) -> None:
        """Raises InputError for an operator that the method is not made for."""
        if not (A.hermitian and A.positive_definite):
            raise InputError(
                "conjugate gradients need a Hermitian positive definite operator, "
                f"which {type(A).__name__} is not: solve its normal equations (NormalEquations), or use "
                "BiCGstab or GCR"
            )

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        """The method itself, on an operator of the inner precision, from y = 0.

        residual: true ones ``[..., width]``, may be overwritten. target: norms to reach. directions: of a
        recurrence before, which held more columns.
        """
        raise NotImplementedError

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
        deflate: Correction | None = None,
    ) -> Solution:
        """The solution of A x = b for all right-hand sides: b is ``[*A.shape, N]`` in the dtype of A.

        x0: first guess, zero by default. on_failure: 'raise' NotConverged, or 'return' x with its status: of
        each right-hand side that of the least true residual, or zero where that is above |b|. deflate: an
        approximate y of A y = r for low modes, of the true residual r at the start and after each replacement
        (`stages.lqcd.solvers.deflation`). Right-hand sides may be zero (giving zero) or linearly dependent;
        more than a GPU takes at once, 64, are solved in equal parts (`stages.lqcd.solvers.parts`). One whose
        norm, or that of its first residual, is not finite is left out, the others are solved: NOT_FINITE.
        Raises InputError if the method cannot take A, or if b or x0 does not fit it; NoRoomError where memory
        is short.
        """
        self.check_operator(A)
        return iterated(self, self.begin, A, b, x0, on_failure, progress, deflate)


def iterated(
    solver: ReliableUpdates,
    begin: Begin,
    A: LinearOperator,
    b: Array,
    x0: Array | None = None,
    on_failure: str = "raise",
    progress: Progress | None = None,
    deflate: Correction | None = None,
) -> Solution:
    """The solution of A x = b by a recurrence, with the tolerance, limits and precisions of a solver."""
    if b.shape[:-1] != A.shape or b.dtype != A.dtype:
        raise InputError(f"b must be {A.dtype} {(*A.shape, 'N')} like the operator, got {b.dtype} {b.shape}")
    if not b.shape[-1]:
        raise InputError(f"b has no right-hand side: its shape is {b.shape}")
    if x0 is not None and (x0.shape != b.shape or x0.dtype != b.dtype):
        raise InputError(f"x0 must be {b.dtype} {b.shape} like b, got {x0.dtype} {x0.shape}")
    if on_failure not in ("raise", "return"):
        raise InputError(f"on_failure must be 'raise' or 'return', got {on_failure!r}")

    def solve(b: Array, x0: Array | None, progress: Progress | None) -> Solution:
        started = time.perf_counter()
        iteration = ReliableIteration(solver, A, b, x0, progress, deflate)
        refused = np.flatnonzero(~np.isfinite(iteration.norms))
        if refused.size:
            del iteration  # its fields are free before there are others
            b, x0 = _cleared(b, refused), None if x0 is None else _cleared(x0, refused)
            iteration = ReliableIteration(solver, A, b, x0, progress, deflate)
        status = iteration.run(begin)
        return without(iteration.solution(status, time.perf_counter() - started), refused)

    with stream.narrowing(WIDTHS if solver.narrows else (), A.xp):
        try:
            solution = solved_in_parts(solve, b, x0, progress, block_blas.widest(A.xp))
        except MemoryError as error:
            raise NoRoomError(
                f"memory has no room for {type(solver).__name__} with {b.shape[-1]} right-hand sides of "
                f"{b.nbytes / 1e9:.3g} GB: take fewer at once, a solver of fewer fields, or more GPUs"
            ) from error
    if solution.status is not SolveStatus.CONVERGED and on_failure == "raise":
        raise NotConverged(solution, solver.tolerance)
    return solution


def _cleared(field: Array, columns: NDArray[np.intp]) -> Array:
    """A copy whose columns of these numbers are zero."""
    copy = copied(field)
    lane_blas.lane_clear(copy, columns)
    return copy

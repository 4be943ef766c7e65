"""The Krylov solvers: what their configurations share, and the solve itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, NoRoomError
from stages.lqcd.dirac.operator import LinearOperator, Storage
from stages.lqcd.kernels import block_blas, lane_blas, stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, contiguous, copied, field_like
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.solvers.frame import ReliableIteration, ReliableUpdates
from stages.lqcd.solvers.recurrence import WIDTHS, Begin, Directions, Recurrence
from stages.lqcd.solvers.solution import (
    NotConverged,
    Progress,
    Solution,
    SolveOptions,
    SolveStatus,
    Vector,
    without,
)
from stages.lqcd.solvers.space import Correction


@dataclass(frozen=True)
class KrylovSolver(ReliableUpdates):
    """Frozen configuration of a solver: of conjugate gradients, unless it says which operators it takes."""

    def check_operator(self, A: LinearOperator) -> None:
        """Raises InputError for an operator that the method is not made for."""
        if not (A.hermitian and A.positive_definite):
            raise InputError(
                "conjugate gradients need a Hermitian positive definite operator, "
                f"which {type(A).__name__} is not: solve its normal equations (NormalEquations), or use "
                "BiCGstab or GCR"
            )

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        """The method itself, on the fields of a storage, from y = 0.

        residual: true ones ``[..., width]``, may be overwritten. target: norms to reach. directions: of a
        recurrence before, which held more columns.
        """
        raise NotImplementedError

    def solve(self, A: LinearOperator, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """The solution of A x = b for all right-hand sides: b is ``[*A.shape, N]`` in the dtype of A.

        Right-hand sides may be zero (giving zero) or linearly dependent; more than a GPU takes at once, 64,
        are solved in equal parts (`solved_in_parts`). One whose norm, or that of its first residual, is not
        finite is left out, the others are solved: NOT_FINITE. A guess whose residual is so large that b is
        lost in its rounding counts as zero.
        Raises InputError if the method cannot take A, or if b or x0 does not fit it; NoRoomError where memory
        is short.
        """
        self.check_operator(A)
        return iterated(self, self.begin, A, b, **options)


@in_one_blas_thread
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
        useless = np.flatnonzero(iteration.norms * np.finfo(b.dtype).eps > iteration.source)
        if refused.size or useless.size:
            del iteration  # its fields are free before there are others
            b, x0 = _cleared(b, refused), None if x0 is None else _cleared(x0, np.union1d(refused, useless))
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


SolvePart = Callable[[Array, Array | None, Progress | None], Solution]
"""The solution of a part, whatever its status, of (b, x0, progress)."""


def equal_parts(columns: int, widest: int) -> list[slice]:
    """The columns in as few runs of at most `widest` as there can be, the widths as equal as can be."""
    bounds = np.linspace(0, columns, ceil(columns / widest) + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def solved_in_parts(
    solve: SolvePart, b: Array, x0: Array | None, progress: Progress | None, widest: int
) -> Solution:
    """One Solution of all columns of b ``[*shape, N]``, as if each part waited for those before.

    iterations, matvecs, seconds and the numbers in extras are sums over the parts; history and `progress` go
    on from one part to the next, with 1 for what is not begun and the last estimate of what is over. status
    is the first that is not CONVERGED: every part is solved whatever becomes of the others.
    """
    if b.shape[-1] <= widest:
        return solve(b, x0, progress)
    x, parts, now = field_like(b), equal_parts(b.shape[-1], widest), np.ones(b.shape[-1])
    solutions: list[Solution] = []
    histories: list[NDArray[np.float64]] = []
    before = 0
    for part in parts:
        columns = (..., part)
        first = None if x0 is None else contiguous(x0[columns])
        solution = solve(contiguous(b[columns]), first, _continued(progress, before, now, part))
        assign(x[columns], solution.x)
        whole = np.tile(now, (len(solution.history), 1))
        whole[:, part] = solution.history
        histories.append(whole if not histories else whole[1:])
        now[part] = solution.history[-1]
        before += solution.iterations
        solutions.append(solution)
    missed = [solution.status for solution in solutions if solution.status is not SolveStatus.CONVERGED]
    return Solution(
        x,
        missed[0] if missed else SolveStatus.CONVERGED,
        before,
        np.concatenate([solution.residual for solution in solutions]),
        np.concatenate(histories),
        sum(solution.matvecs for solution in solutions),
        sum(solution.seconds for solution in solutions),
        {name: sum(solution.extras[name] for solution in solutions) for name in solutions[0].extras},
    )


def _continued(progress: Progress | None, before: int, now: Vector, part: slice) -> Progress | None:
    """`progress` for all columns, in a part that so many iterations went before."""
    if progress is None:
        return None

    def report(iteration: int, residuals: Vector) -> None:
        whole = now.copy()
        whole[part] = residuals
        progress(before + iteration, whole)

    return report

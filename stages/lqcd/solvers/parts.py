"""Solves of more right-hand sides than a backend takes at once, in parts of equal width."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, contiguous, field_like
from stages.lqcd.solvers.recurrence import Vector
from stages.lqcd.solvers.reliable_updates import Progress
from stages.lqcd.solvers.solution import Solution, SolveStatus

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

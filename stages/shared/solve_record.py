"""Record of how a chunk's linear systems were solved, kept with the chunk."""

from __future__ import annotations

from typing import Any

from pipeline import At
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import SolveStatistics


def record_solves(at: At, solve: Solve, *statistics: SolveStatistics, **more: Any) -> None:
    """Records solver, precision, counts, seconds, and the largest residuals of all right-hand sides.

    statistics: of one kind of systems each, such as a mass; status and history are those of the first. more:
    what else belongs to the record.
    """
    seconds, rhs = sum(each.seconds for each in statistics), sum(each.rhs for each in statistics)
    at.record(
        solver=solve.solver,
        precision=solve.precision,
        status=statistics[0].status,
        rhs=rhs,
        iterations=[number for each in statistics for number in each.iterations],
        matvecs=sum(each.matvecs for each in statistics),
        residual_max=max(each.residual_max for each in statistics),
        full_residual_max=max(each.full_residual_max for each in statistics),
        solve_seconds=seconds,
        seconds_per_rhs=seconds / rhs,
        history=[float(f"{value:.3e}") for value in statistics[0].history],
        **more,
    )

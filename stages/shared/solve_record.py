"""Record of how a chunk's linear systems were solved, kept with the chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline import At
from stages.base.gpus import gpus_of
from stages.lqcd.dirac.application import Application
from stages.lqcd.kernels.copy_bandwidth import copy_bandwidth
from stages.lqcd.solvers.named import MULTIGRID, Solve
from stages.lqcd.solvers.solution import SolveStatistics

HISTORY = 2000
"""Most residuals of a history that a record keeps: light quarks take some ten thousand iterations."""

Counted = Callable[[float, str], Application]
"""Operations and bytes of the system's operator, by columns of a block and precision."""


def record_solves(
    at: At, solve: Solve, *statistics: SolveStatistics, application: Counted, **more: Any
) -> None:
    """Records solver, precision, counts, seconds, speed, and the largest residuals of all right-hand sides.

    statistics: of one kind of systems each, such as a mass; status and history are those of the first. Of a
    long history every `history_step`-th residual is kept, at most `HISTORY`. more: what else belongs to the
    record.
    """
    history = statistics[0].history
    step = -(-len(history) // HISTORY)
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
        history=[float(f"{value:.3e}") for value in history[::step]],
        **({"history_step": step} if step > 1 else {}),
        **speed_of(at, solve, statistics, application),
        **more,
    )


def speed_of(
    at: At, solve: Solve, statistics: tuple[SolveStatistics, ...], application: Counted
) -> dict[str, float | None]:
    """Speed of the operator's applications alone, by the time of whole solves.

    gflops; copy_bandwidth: of the device, or all GPUs of the worker, in GB/s, None where it was never
    measured; of_copy_bandwidth: the fraction of it at which the bytes of the applications moved. None of
    multigrid, whose work is elsewhere.
    """
    seconds = sum(each.seconds for each in statistics)
    blocks = sum(len(each.residual) for each in statistics)
    each = copy_bandwidth(at.backend)
    copy = each and gpus_of(at.backend) * each
    speed: dict[str, float | None] = {"gflops": None, "copy_bandwidth": copy, "of_copy_bandwidth": None}
    if solve.solver == MULTIGRID or not seconds or not blocks:
        return speed
    columns = sum(each.rhs for each in statistics) / blocks
    flops, nbytes = application(columns, solve.precision)
    rate = sum(each.matvecs for each in statistics) / seconds / 1e9
    speed["gflops"] = rate * flops
    speed["of_copy_bandwidth"] = rate * nbytes / copy if copy else None
    return speed

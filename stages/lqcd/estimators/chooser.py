"""What solvers take for the linear systems of an estimator: each is measured on a block of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stages.lqcd.dirac.operator import LinearOperator, Solver
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.solution import Solution
from stages.lqcd.solvers.trial import PATIENCE, Stopwatch, Trial, tried


@dataclass(frozen=True)
class System:
    """A kind of linear systems, by name: the operator, a block of sources ``[*shape, N]``, the tolerance."""

    name: str
    operator: LinearOperator
    sources: Array
    tolerance: float


def measure(
    systems: Sequence[System],
    candidates: Mapping[str, Callable[[float], Solver]],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, list[Trial]]:
    """Trials of each candidate on the systems, in the order given, until it fails on one.

    candidates: by name, the solver for a tolerance; those that need the least preparation first, since one
    that takes several times as long as another before it, on one of the systems, is given up. Each system is
    solved twice: the first time compiles, the second one is timed as a whole, with guesses from low modes.
    """
    best = [float("inf")] * len(systems)
    found: dict[str, list[Trial]] = {}
    for number, (name, make) in enumerate(candidates.items(), start=1):
        trials = found[name] = []
        for system, seconds in zip(systems, best, strict=True):
            trials.append(_trial(name, system, make(system.tolerance), PATIENCE * seconds))
            if not trials[-1].converged:
                break
        else:
            best = [min(b, trial.seconds_per_rhs) for b, trial in zip(best, trials, strict=True)]
        progress(number, len(candidates))
    return found


def outcome(systems: Sequence[System], trials: Sequence[Trial]) -> str:
    """`CONVERGED`, or on which of the systems a candidate failed, and how."""
    last = trials[-1]
    return last.how if last.converged else f"{systems[len(trials) - 1].name}, {last.how}"


def _trial(name: str, system: System, solver: Solver, limit: float) -> Trial:
    """limit: seconds per right-hand side."""
    A, b = system.operator, system.sources

    def solve(watch: Stopwatch) -> Solution:
        watch.start()
        solver.solve(A, b, progress=watch)
        return watch.whole(lambda: solver.solve(A, b), b)

    return tried(name, b.shape[-1], limit * b.shape[-1], solve)

"""Which solver is cheapest for a campaign: each is measured on a block of its own right-hand sides.

The cost of n right-hand sides is setup + n x seconds per right-hand side. Methods are tried in the order
given; one that takes several times what the best so far did is given up (`stages.lqcd.solvers.trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.multigrid.multigrid import PoorSetup
from stages.lqcd.solvers.solution import Solution
from stages.lqcd.solvers.trial import FAILURES, PATIENCE, Stopwatch, Trial, check_one_converged, tried
from stages.lqcd.spectroscopy.even_odd import Method


@dataclass(frozen=True)
class Candidate:
    """A method by name. make(tolerance) gives it, and what it takes to make it is its setup."""

    name: str
    make: Callable[[float], Method]


def measure(
    M: WilsonOperator,
    sources: Array,
    candidates: Sequence[Candidate],
    tolerance: float,
    planned: int,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Trial]:
    """A trial of each candidate on the block `sources` ``[parity, site, 12, N]``, in the order given."""
    trials: list[Trial] = []
    for number, candidate in enumerate(candidates, start=1):
        best = min((trial.cost(planned) for trial in trials), default=float("inf"))
        limit = PATIENCE * best * sources.shape[-1] / planned
        trials.append(_trial(M, sources, candidate, tolerance, limit))
        progress(number, len(candidates))
    return trials


def cheapest(trials: Sequence[Trial], planned: int) -> int:
    """Index of the trial that costs least for `planned` right-hand sides of a configuration.

    Raises InputError where none converged.
    """
    check_one_converged({trial.name: trial.how for trial in trials}, "use a smaller kappa (a larger mass)")
    return int(np.argmin([trial.cost(planned) for trial in trials]))


def _trial(M: WilsonOperator, sources: Array, candidate: Candidate, tolerance: float, limit: float) -> Trial:
    def solve(watch: Stopwatch) -> Solution:
        method = watch.setup(lambda: candidate.make(tolerance), sources)
        watch.start()
        return method.solve(M, sources, watch)

    return tried(candidate.name, sources.shape[-1], limit, solve, (*FAILURES, PoorSetup))

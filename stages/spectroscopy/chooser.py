"""Which solver is cheapest for a campaign: each is measured on a block of its own right-hand sides.

The cost of n right-hand sides is setup + n x seconds per right-hand side. Methods are tried in the order
given; one that takes several times what the best so far did is given up. What a method compiles at its first
call is no part of it: setups are made twice, and pauses between iterations are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stages.dirac.wilson import WilsonOperator
from stages.kernels.dispatch import Array, array_module
from stages.lattice.errors import InputError
from stages.multigrid.multigrid import PoorSetup
from stages.solvers.solution import NotConverged
from stages.spectroscopy.even_odd import Method

PAUSE = 5.0
"""Times an ordinary iteration: what one takes beyond that is compilation, or another program."""
EVERY = 8
"""Iterations after which a solve is asked how long it took so far."""
PATIENCE = 4.0
"""Times the best method's seconds, after which another one is given up."""


@dataclass(frozen=True)
class Candidate:
    """A method by name. make(tolerance) gives it, and what it takes to make it is its setup."""

    name: str
    make: Callable[[float], Method]


@dataclass(frozen=True)
class Trial:
    """What a block of right-hand sides took; how: 'converged', or why there is no such time."""

    name: str
    how: str
    setup_seconds: float
    seconds_per_rhs: float
    iterations: int
    residual: float

    @property
    def converged(self) -> bool:
        return self.how == "converged"

    def cost(self, planned: int) -> float:
        """Seconds of `planned` right-hand sides of a configuration, with the setup; infinite if it failed."""
        return self.setup_seconds + planned * self.seconds_per_rhs if self.converged else float("inf")


class TooSlow(Exception):  # noqa: N818 - it reads as what it is
    """A solve took several times as long as that of another method."""


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
    if not any(trial.converged for trial in trials):
        said = "; ".join(f"{trial.name}: {trial.how.split(': ')[0]}" for trial in trials)  # without remedies
        raise InputError(
            f"no solver reached the tolerance ({said}): raise max_iterations, loosen the tolerance, or use a "
            "smaller kappa (a larger mass)"
        )
    return int(np.argmin([trial.cost(planned) for trial in trials]))


def _trial(M: WilsonOperator, sources: Array, candidate: Candidate, tolerance: float, limit: float) -> Trial:
    watch, setup = _Stopwatch(limit), np.nan
    failed = partial(Trial, candidate.name, seconds_per_rhs=np.nan, iterations=0, residual=np.nan)
    try:
        candidate.make(tolerance)  # compiles what the one that is timed needs
        _wait(sources)
        started = time.perf_counter()
        method = candidate.make(tolerance)
        _wait(sources)
        setup = time.perf_counter() - started
        watch.start()
        solution = method.solve(M, sources, watch)
    except TooSlow:
        return failed(how=f"given up after {limit:.2g} s", setup_seconds=setup)
    except (NotConverged, PoorSetup, InputError) as error:
        return failed(how=str(error), setup_seconds=setup)
    seconds, residual = watch.seconds() / sources.shape[-1], float(np.max(solution.residual))
    return Trial(candidate.name, "converged", setup, seconds, int(solution.iterations), residual)


class _Stopwatch:
    """A progress report that knows how long iterations take, and ends a solve that takes too long."""

    def __init__(self, limit: float) -> None:
        self.limit, self.stamps = limit, [0.0]

    def start(self) -> None:
        self.stamps = [time.perf_counter()]

    def __call__(self, iteration: int, residuals: Any) -> None:
        self.stamps.append(time.perf_counter())
        if len(self.stamps) % EVERY == 0 and self.seconds() > self.limit:
            raise TooSlow

    def seconds(self) -> float:
        """Without what an iteration took more than `PAUSE` times as long as the others."""
        steps = np.diff(self.stamps)
        return float(np.minimum(steps, PAUSE * np.median(steps)).sum()) if steps.size else 0.0


def _wait(like: Array) -> None:
    """Until a device has done what it was given."""
    xp = array_module(like)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()

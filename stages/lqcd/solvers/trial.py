"""Trials: what solvers take for blocks of right-hand sides, so that one can be chosen for a campaign.

Solvers are tried in the order given; one that takes several times what the best so far did is given up. What
a solver compiles at its first call is no part of a trial: a setup is made twice, and a solve is either made
twice, too (`repeated`), or pauses between its iterations are not counted (`uninterrupted`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.even_odd import Method
from stages.lqcd.solvers.solution import NotConverged, Solution

PAUSE = 5.0
"""Times an ordinary iteration: what one takes beyond that is compilation, or another program."""
EVERY = 8
"""Iterations after which a solve is asked how long it took so far."""
PATIENCE = 4.0
"""Times the best solver's seconds, after which another one is given up."""
LEAST = 3.0
"""Seconds that every solver has: less is soon over, and may be the doing of another program."""
CONVERGED = "converged"
FAILURES: tuple[type[Exception], ...] = (NotConverged, InputError)
"""Of a solver, which leave the others to be tried."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class TrialSystem:
    """Linear systems by name: an operator M, a block of right-hand sides ``[*, N]``, the tolerance."""

    name: str
    operator: Any
    sources: Array
    tolerance: float

    @property
    def columns(self) -> int:
        return self.sources.shape[-1]


@dataclass(frozen=True)
class Trial:
    """The cost of a block of right-hand sides; how: `CONVERGED`, or why there is no such time."""

    name: str
    how: str
    setup_seconds: float
    seconds_per_rhs: float
    iterations: int
    residual: float

    @property
    def converged(self) -> bool:
        return self.how == CONVERGED

    def cost(self, planned: int) -> float:
        """Seconds of `planned` right-hand sides of a configuration, with the setup; infinite if it failed."""
        return self.setup_seconds + planned * self.seconds_per_rhs if self.converged else float("inf")


class TooSlow(Exception):  # noqa: N818 - it reads as what it is
    """A solve took several times as long as that of another solver."""


class Stopwatch:
    """A progress report that knows how long iterations take, and ends a solve that takes too long."""

    def __init__(self, limit: float) -> None:
        self.limit, self.setup_seconds, self.stamps = max(limit, LEAST), float("nan"), [0.0]

    def setup(self, make: Callable[[], Result], like: Array) -> Result:
        """The result of `make`, which is timed the second time: the first one compiles."""
        make()
        started = _now(like)
        result = make()
        self.setup_seconds = _now(like) - started
        return result

    def start(self) -> None:
        """Begin to count: from here on each call ends an iteration."""
        self.stamps = [time.perf_counter()]

    def __call__(self, iteration: int, residuals: Any) -> None:
        self.stamps.append(time.perf_counter())
        if len(self.stamps) % EVERY == 0 and self.seconds() > self.limit:
            raise TooSlow

    def whole(self, solve: Callable[[], Result], like: Array) -> Result:
        """The result of `solve`, timed from its beginning to its end, pauses and all."""
        started = _now(like)
        result = solve()
        self.stamps = [started, _now(like)]
        return result

    def seconds(self) -> float:
        """Without what an iteration took more than `PAUSE` times as long as the others."""
        steps = np.diff(self.stamps)
        return float(np.minimum(steps, PAUSE * np.median(steps)).sum()) if steps.size else 0.0


Timing = Callable[[Method, TrialSystem, Stopwatch], Solution]
"""How a solve is timed."""


def uninterrupted(solver: Method, problem: TrialSystem, watch: Stopwatch) -> Solution:
    """A single solve, timed by its iterations."""
    watch.start()
    return solver.solve(problem.operator, problem.sources, progress=watch)


def repeated(solver: Method, problem: TrialSystem, watch: Stopwatch) -> Solution:
    """Two solves, the second one timed as a whole.

    For solvers that begin with work which is no iteration, as guesses from low modes.
    """
    M, b = problem.operator, problem.sources
    watch.start()
    solver.solve(M, b, progress=watch)
    return watch.whole(lambda: solver.solve(M, b), b)


def measure(
    problems: Sequence[TrialSystem],
    candidates: Mapping[str, Callable[[float], Method]],
    planned: int,
    timing: Timing = uninterrupted,
    failures: tuple[type[Exception], ...] = FAILURES,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, list[Trial]]:
    """Trials of each candidate on the problems, in the order given, until it fails on one.

    candidates: by name, what makes the solver for a tolerance, which is its setup; those that need the least
    preparation first, since one that takes several times as long as another before it, on one of the problems
    and for `planned` right-hand sides, is given up. failures: errors that mean no more than that a candidate
    is not to be had.
    """
    best = [float("inf")] * len(problems)
    trials: dict[str, list[Trial]] = {}
    for number, (name, make) in enumerate(candidates.items(), start=1):
        trials[name] = []
        for problem, cost in zip(problems, best, strict=True):
            watch = Stopwatch(PATIENCE * cost * problem.columns / planned)
            trials[name].append(_tried(name, problem, make, watch, timing, failures))
            if not trials[name][-1].converged:
                break
        else:
            best = [min(b, trial.cost(planned)) for b, trial in zip(best, trials[name], strict=True)]
        progress(number, len(candidates))
    return trials


def outcome(problems: Sequence[TrialSystem], trials: Sequence[Trial]) -> str:
    """`CONVERGED`, or on which of several problems a candidate failed, and how."""
    last = trials[-1]
    return last.how if last.converged else f"{problems[len(trials) - 1].name}, {last.how}"


def cheapest(trials: Sequence[Trial], planned: int) -> int:
    """Index of the trial that costs least for `planned` right-hand sides of a configuration."""
    return int(np.argmin([trial.cost(planned) for trial in trials]))


def check_one_converged(how: Mapping[str, str], remedy: str) -> None:
    """Raises InputError where no solver of those named did; `how` as that of trials."""
    if CONVERGED not in how.values():
        reasons = "; ".join(f"{name}: {reason_of(why)}" for name, why in how.items())
        raise InputError(
            f"no solver reached the tolerance ({reasons}): raise max_iterations, loosen the tolerance, "
            f"or {remedy}"
        )


def reason_of(how: str) -> str:
    """The reason why a trial failed, without the remedy."""
    return how.split(": ")[0]


def _tried(
    name: str,
    problem: TrialSystem,
    make: Callable[[float], Method],
    watch: Stopwatch,
    timing: Timing,
    failures: tuple[type[Exception], ...],
) -> Trial:
    failed = partial(Trial, name, seconds_per_rhs=np.nan, iterations=0, residual=np.nan)
    try:
        solver = watch.setup(lambda: make(problem.tolerance), problem.sources)
        solution = timing(solver, problem, watch)
    except TooSlow:
        return failed(how=f"given up after {watch.limit:.2g} s", setup_seconds=watch.setup_seconds)
    except failures as error:
        return failed(how=str(error), setup_seconds=watch.setup_seconds)
    seconds, residual = watch.seconds() / problem.columns, float(np.max(solution.residual))
    return Trial(name, CONVERGED, watch.setup_seconds, seconds, int(solution.iterations), residual)


def _now(like: Array) -> float:
    """The time when a device has done what it was given."""
    stream.finish(like)
    return time.perf_counter()

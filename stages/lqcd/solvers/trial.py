"""Trials: what a solver takes for a block of right-hand sides, so that one can be chosen for a campaign.

One that takes several times what the best so far did is given up. What a method compiles at its first call is
no part of it: a setup is made twice, and a solve is either made twice, too, or pauses between its iterations
are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.solvers.solution import NotConverged, Solution

PAUSE = 5.0
"""Times an ordinary iteration: what one takes beyond that is compilation, or another program."""
EVERY = 8
"""Iterations after which a solve is asked how long it took so far."""
PATIENCE = 4.0
"""Times the best method's seconds, after which another one is given up."""
LEAST = 3.0
"""Seconds that every method has: less is soon over, and may be the doing of another program."""
CONVERGED = "converged"
FAILURES: tuple[type[Exception], ...] = (NotConverged, InputError)
"""Of a method, which leave the others to be tried."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Trial:
    """What a block of right-hand sides took; how: `CONVERGED`, or why there is no such time."""

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
    """A solve took several times as long as that of another method."""


class Stopwatch:
    """A progress report that knows how long iterations take, and ends a solve that takes too long."""

    def __init__(self, limit: float) -> None:
        self.limit, self.setup_seconds, self.stamps = max(limit, LEAST), float("nan"), [0.0]

    def setup(self, make: Callable[[], Made], like: Array) -> Made:
        """What `make` gives, which is timed the second time: the first one compiles."""
        make()
        started = _now(like)
        made = make()
        self.setup_seconds = _now(like) - started
        return made

    def start(self) -> None:
        """From here on each call ends an iteration."""
        self.stamps = [time.perf_counter()]

    def __call__(self, iteration: int, residuals: Any) -> None:
        self.stamps.append(time.perf_counter())
        if len(self.stamps) % EVERY == 0 and self.seconds() > self.limit:
            raise TooSlow

    def whole(self, solve: Callable[[], Made], like: Array) -> Made:
        """What `solve` gives, timed from its beginning to its end, pauses and all."""
        started = _now(like)
        made = solve()
        self.stamps = [started, _now(like)]
        return made

    def seconds(self) -> float:
        """Without what an iteration took more than `PAUSE` times as long as the others."""
        steps = np.diff(self.stamps)
        return float(np.minimum(steps, PAUSE * np.median(steps)).sum()) if steps.size else 0.0


def tried(
    name: str,
    columns: int,
    limit: float,
    solve: Callable[[Stopwatch], Solution],
    failures: tuple[type[Exception], ...] = FAILURES,
) -> Trial:
    """The trial of a method on a block of `columns` right-hand sides; `limit`: seconds to give it up after.

    solve: does it with a stopwatch that it starts. failures: errors that mean no more than that this method
    is not to be had.
    """
    watch = Stopwatch(limit)
    failed = partial(Trial, name, seconds_per_rhs=np.nan, iterations=0, residual=np.nan)
    try:
        solution = solve(watch)
    except TooSlow:
        return failed(how=f"given up after {watch.limit:.2g} s", setup_seconds=watch.setup_seconds)
    except failures as error:
        return failed(how=str(error), setup_seconds=watch.setup_seconds)
    seconds, residual = watch.seconds() / columns, float(np.max(solution.residual))
    return Trial(name, CONVERGED, watch.setup_seconds, seconds, int(solution.iterations), residual)


def check_one_converged(how: Mapping[str, str], remedy: str) -> None:
    """Raises InputError where no method of those named did; `how` as that of trials."""
    if CONVERGED not in how.values():
        said = "; ".join(f"{name}: {reason_of(why)}" for name, why in how.items())
        raise InputError(
            f"no solver reached the tolerance ({said}): raise max_iterations, loosen the tolerance, "
            f"or {remedy}"
        )


def reason_of(how: str) -> str:
    """What went wrong in a failed trial, without the remedy."""
    return how.split(": ")[0]


def _now(like: Array) -> float:
    """The time when a device has done what it was given."""
    xp = array_module(like)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()
    return time.perf_counter()

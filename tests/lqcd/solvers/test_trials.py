"""Trials of solvers of known cost, with setups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.solution import NotConverged, Solution, SolveStatus
from stages.lqcd.solvers.trial import Trial, TrialSystem, cheapest, check_one_converged, measure


@dataclass
class Clock:
    """Seconds that pass only when a method works."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@dataclass
class Scripted:
    """A method whose iterations take given seconds; it fails or not."""

    clock: Clock
    seconds: float
    iterations: int = 10
    fails: bool = False
    pause: float = 0.0

    def solve(self, M: Any, b: np.ndarray, progress: Any = None) -> Solution:
        status = SolveStatus.ITERATION_LIMIT if self.fails else SolveStatus.CONVERGED
        for iteration in range(self.iterations):
            self.clock.now += self.seconds / self.iterations + (self.pause if iteration == 3 else 0.0)
            if progress:
                progress(iteration, None)
        n = b.shape[-1]
        made = Solution(b, status, self.iterations, np.full(n, 1e-9), np.ones((2, n)), 1, self.seconds)
        if self.fails:
            raise NotConverged(made, 1e-10)
        return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(trial, "time", made)
    return made


def candidate(clock: Clock, setup: float, seconds: float, **options: Any) -> Callable[[float], Scripted]:
    def make(tolerance: float) -> Scripted:
        clock.now += setup
        return Scripted(clock, seconds, **options)

    return make


def trials_of(candidates: dict[str, Any], planned: int, **options: Any) -> list[Trial]:
    problem = TrialSystem("sources", None, np.ones((2, 8, 12, 4), complex), 1e-10)
    return [trial for (trial,) in measure([problem], candidates, planned, **options).values()]


@pytest.mark.parametrize(("planned", "best"), [(4, "plain"), (40, "with setup")])
def test_setup_pays_for_many(clock: Clock, planned: int, best: str) -> None:
    """8 s for 4 columns against 20 s and then 2 s: equal at some 13 columns."""
    candidates = {"plain": candidate(clock, 0.0, 8.0), "with setup": candidate(clock, 20.0, 2.0)}
    trials = trials_of(candidates, planned)
    assert trials[cheapest(trials, planned)].name == best
    assert [trial.setup_seconds for trial in trials] == [0.0, 20.0]
    assert [trial.seconds_per_rhs for trial in trials] == pytest.approx([2.0, 0.5])
    assert trials[1].cost(planned) == pytest.approx(20 + 0.5 * planned)


def test_what_fails_or_takes_long_is_not_taken(clock: Clock) -> None:
    candidates = {
        "stuck": candidate(clock, 0.0, 1.0, fails=True),
        "good": candidate(clock, 0.0, 4.0),
        "slow": candidate(clock, 0.0, 1000.0),
    }
    progress: list[tuple[int, int]] = []
    trials = trials_of(candidates, 4, progress=lambda *done: progress.append(done))
    assert trials[cheapest(trials, 4)].name == "good"
    assert "iteration limit" in trials[0].how and trials[2].how == "given up after 16 s"
    assert not trials[0].converged and np.isinf(trials[2].cost(4))
    assert clock.now < 1000 and progress == [(1, 3), (2, 3), (3, 3)]


def test_pauses_are_not_counted(clock: Clock) -> None:
    """Compilation in the midst of the solve: 50 s, of which 5 iterations' time remains."""
    trials = trials_of({"compiles": candidate(clock, 0.0, 2.0, pause=50.0)}, 4)
    assert trials[0].seconds_per_rhs == pytest.approx((2.0 + 4 * 0.2) / 4)


def test_a_setup_that_cannot_be_made_is_not_taken(clock: Clock) -> None:
    """As that of multigrid for an operator with a zero mode."""

    def impossible(tolerance: float) -> Scripted:
        raise InputError("near-null vectors are linearly dependent")

    candidates = {"multigrid": impossible, "plain": candidate(clock, 0.0, 8.0)}
    trials = trials_of(candidates, 4)
    assert trials[cheapest(trials, 4)].name == "plain" and "linearly dependent" in trials[0].how


def test_nothing_converges() -> None:
    """One remedy for all, not that of each."""
    failed = Trial("cgnr", "the iteration limit came: take a walk", np.nan, np.nan, 0, np.nan)
    with pytest.raises(InputError, match=r"tolerance \(cgnr: the iteration limit came\): .*smaller kappa"):
        check_one_converged({failed.name: failed.how}, "use a smaller kappa")

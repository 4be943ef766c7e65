"""Trials of solvers of known cost on several problems, each solved twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.solution import NotConverged, Solution, SolveStatus
from stages.lqcd.solvers.trial import Trial, TrialSystem, check_one_converged, outcome, repeated


@dataclass
class Clock:
    """Seconds that pass only when a solver works."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@dataclass
class Scripted:
    """A solver that guesses and iterates for given seconds, and longer the first time, when it compiles."""

    clock: Clock
    seconds: float
    guess: float = 0.0
    compiles: float = 0.0
    fails: bool = False

    def solve(self, A: Any, b: np.ndarray, progress: Any = None) -> Solution:
        self.clock.now += self.guess + self.compiles
        self.compiles = 0.0
        for iteration in range(16):
            self.clock.now += self.seconds / 16
            if progress:
                progress(iteration, None)
        status = SolveStatus.ITERATION_LIMIT if self.fails else SolveStatus.CONVERGED
        made = Solution(b, status, 16, np.full(b.shape[-1], 1e-9), np.ones((2, 1)), 1, self.seconds)
        if self.fails:
            raise NotConverged(made, 1e-10)
        return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(trial, "time", made)
    return made


OPERATOR: Any = None
PROBLEMS = [TrialSystem(name, OPERATOR, np.ones((8, 3, 4), complex), 1e-8) for name in ("light", "strange")]


def measure(
    problems: list[TrialSystem], candidates: dict[str, Any], progress: Any = lambda *_: None
) -> dict[str, list[Trial]]:
    return trial.measure(problems, candidates, 4, repeated, progress=progress)


def test_a_guess_from_low_modes_counts_and_compilation_does_not(clock: Clock) -> None:
    """The guess takes 40 iterations' time: no pause that might be left out."""
    solver = Scripted(clock, 1.6, guess=4.0, compiles=90.0)
    found = measure(PROBLEMS[:1], {"deflated": lambda tolerance: solver})
    assert found["deflated"][0].seconds_per_rhs == pytest.approx((1.6 + 4.0) / 4)
    assert found["deflated"][0].iterations == 16


def test_what_fails_on_one_system_is_not_tried_on_others(clock: Clock) -> None:
    made: list[tuple[str, float]] = []

    def candidate(name: str, **options: Any) -> Any:
        def make(tolerance: float) -> Scripted:
            made.append((name, tolerance))
            return Scripted(clock, **options)

        return make

    candidates = {
        "stuck": candidate("stuck", seconds=1.0, fails=True),
        "good": candidate("good", seconds=4.0),
        "slow": candidate("slow", seconds=100.0),
        "better": candidate("better", seconds=3.0),
    }
    progress: list[tuple[int, int]] = []
    found = measure(PROBLEMS, candidates, lambda *done: progress.append(done))
    how = {name: outcome(PROBLEMS, trials) for name, trials in found.items()}
    assert [len(trials) for trials in found.values()] == [1, 2, 1, 2]
    assert [name for name, _ in made[::2]] == ["stuck", "good", "good", "slow", "better", "better"]
    assert how["stuck"].startswith("light, 4 of 4 right-hand sides missed the tolerance")
    assert how["slow"] == "light, given up after 16 s" and how["good"] == how["better"] == "converged"
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)] and clock.now < 100
    check_one_converged(how, "go home")
    with pytest.raises(InputError, match=r"tolerance \(slow: light, given up after 16 s\): .*, or go home"):
        check_one_converged({"slow": how["slow"]}, "go home")


def test_a_fast_failure_makes_nobody_impatient(clock: Clock) -> None:
    """A solver that is fast on one system and fails on the next is none to be compared with."""
    ends = iter([False, False, True, True])  # a solver is made twice
    candidates = {
        "half": lambda tolerance: Scripted(clock, 0.1, fails=next(ends)),
        "slow": lambda tolerance: Scripted(clock, 4.0),
    }
    found = measure(PROBLEMS, candidates)
    assert not found["half"][1].converged and all(each.converged for each in found["slow"])

"""Trials of solvers of known cost, in precisions and blocks, with setups and low modes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.solution import NotConverged, Solution, SolveStatus
from stages.lqcd.solvers.trial import (
    CONVERGED,
    Candidate,
    Trials,
    TrialSystem,
    candidates,
    check_one_converged,
    trial_widths,
)

SOLVERS = ("batched_cg", "block_cgrq")


@dataclass
class Clock:
    """Seconds that pass only when a solver works."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@dataclass
class Scripted:
    """A solver whose solves take given seconds, more the first time, when it compiles; it fails or not."""

    clock: Clock
    seconds: float
    guess: float = 0.0
    pause: float = 0.0
    fails: bool = False
    room: float = np.inf

    def solve(self, M: Any, b: np.ndarray, progress: Any = None) -> Solution:
        if b.shape[-1] > self.room:
            raise MemoryError
        self.clock.now += self.guess
        for iteration in range(16):
            self.clock.now += self.seconds / 16 + (self.pause if iteration == 3 else 0.0)
            if progress:
                progress(iteration, None)
        self.pause = 0.0
        status = SolveStatus.ITERATION_LIMIT if self.fails else SolveStatus.CONVERGED
        made = Solution(b, status, 16, np.full(b.shape[-1], 1e-9), np.ones((2, 1)), 1, self.seconds)
        if self.fails:
            raise NotConverged(made, 1e-10)
        return made


@dataclass
class Script:
    """Seconds of a right-hand side of each candidate, by solver, precision and block; of setups by solver."""

    seconds: Callable[[Candidate], float]
    clock: Clock
    setups: dict[str, float] = field(default_factory=dict)
    options: Callable[[Candidate], dict[str, Any]] = lambda candidate: {}
    planned: tuple[int, ...] = (1000,)
    solved: list[tuple[str, int]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    impossible: str = ""

    def measure(self, *names: str) -> Trials:
        block = np.ones((8, 3, 64), complex)
        systems = [
            TrialSystem(f"system {k}", lambda _: None, block, 1e-10, planned)
            for k, planned in enumerate(self.planned)
        ]
        trials = Trials(systems, self.method, self.setup)
        trials.measure([Candidate.parse(name) for name in names])
        return trials

    def method(self, candidate: Candidate, tolerance: float, _: Any) -> Scripted:
        self.solved.append((str(candidate), candidate.block))
        return Scripted(self.clock, self.seconds(candidate) * candidate.block, **self.options(candidate))

    def setup(self, solver: str) -> None:
        self.made.append(solver)
        self.clock.now += self.setups.get(solver, 0.0)
        if solver == self.impossible:
            raise InputError("near-null vectors are linearly dependent: fewer")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(trial, "time", made)
    return made


def best(trials: Trials) -> str:
    return str(min(trials.done, key=trials.cost))


def how(trials: Trials) -> dict[str, str]:
    return {str(candidate): each.how for candidate, each in trials.done.items()}


def test_names() -> None:
    for name in ("block_cgrq double 32", "deflated batched_cg double-half 4"):
        assert str(Candidate.parse(name)) == name


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("double", ["batched_cg double", "block_cgrq double"]),
        ("double-single", ["batched_cg double", "batched_cg double-single"]),
        ("double-half", ["batched_cg double", "batched_cg double-single", "batched_cg double-half"]),
    ],
)
def test_no_precision_is_coarser_than_that_asked_for(precision: str, expected: list[str]) -> None:
    names = [str(each) for each in candidates(SOLVERS, precision, [16])]
    assert names[: len(expected)] == [f"{each} 16" for each in expected]
    assert "block_cgrq double-half 16" not in names and "block_cgrq double 16" in names


@pytest.mark.parametrize(
    ("block", "columns", "widths"),
    [
        (16, 64, [16, 32, 64, 8, 4]),
        (16, 16, [16, 8, 4]),
        (48, 64, [48, 64, 24, 12]),
        (48, 1000, [48, 63, 24, 12]),  # 16 blocks that are alike
        (64, 640, [64, 32, 16]),
        (24, 12, [24, 6]),
        (24, 3, [24, 1]),
        (24, 1, [24]),
    ],
)
def test_widths_are_what_a_chunk_allows(block: int, columns: int, widths: list[int]) -> None:
    assert trial_widths(block, columns) == widths


@pytest.mark.parametrize(("planned", "chosen"), [(8, "bicgstab double 4"), (40, "multigrid double 4")])
def test_a_setup_pays_for_many(clock: Clock, planned: int, chosen: str) -> None:
    """2 s for a column against 20 s and then 0.5 s: equal at some 13 columns. One setup is for all."""
    script = Script(
        lambda each: 2.0 if each.solver == "bicgstab" else 0.5, clock, {"multigrid": 20.0}, planned=(planned,)
    )
    trials = script.measure("bicgstab double 4", "multigrid double 4", "multigrid double-single 4")
    assert best(trials) == chosen and script.made.count("multigrid") == 2
    assert trials.done[Candidate("multigrid", "double", 4)].setup_seconds == 20.0


def test_double_is_found_where_rounding_costs_iterations(clock: Clock) -> None:
    """Figures of 32^3 x 48 at m = 0.005: the block grows as long as it pays."""
    figures = {
        "batched_cg double-single": {48: 0.74},
        "batched_cg double": {48: 1.25},
        "block_cgrq double-single": {48: 0.476, 64: 0.47},
        "block_cgrq double": {48: 0.274, 64: 0.249},
    }
    script = Script(lambda c: figures[f"{c.solver} {c.precision}"].get(c.block, 9.0), clock)
    trials = script.measure(*map(str, candidates(SOLVERS, "double-single", [48, 64, 24, 12])))
    assert best(trials) == "block_cgrq double 64"
    assert [name for name, block in script.solved if block != 48] == [
        "block_cgrq double 64",
        "block_cgrq double-single 64",
    ], "no width but those that lead on is tried"


def test_a_block_that_is_too_wide_is_made_narrower(clock: Clock) -> None:
    per_rhs = {64: 2.0, 32: 0.6, 16: 0.5}
    script = Script(lambda c: per_rhs[c.block] * (1 + (c.solver == "batched_cg")), clock)
    trials = script.measure(*map(str, candidates(SOLVERS, "double", [64, 32, 16])))
    assert best(trials) == "block_cgrq double 16"


def test_what_cannot_win_any_more_is_dropped_early(clock: Clock) -> None:
    """The seconds of all systems count: what is slow on one that matters little may win."""
    seconds = {"batched_cg": 1.0, "block_cgrq": 40.0}
    script = Script(lambda c: seconds[c.solver], clock, planned=(90, 10))
    trials = script.measure("batched_cg double 4", "block_cgrq double 4")
    assert how(trials)["block_cgrq double 4"] == "dropped, as others take less (system 0)"
    assert clock.now == 16 + 7 * 10.0, "in the midst of its first solve of 160 s"
    assert np.isinf(trials.cost(Candidate("block_cgrq", "double", 4)))

    seconds_of = {"batched_cg": iter([1.0, 1.0]), "block_cgrq": iter([8.0, 0.1])}

    def by_system(c: Candidate) -> float:
        return next(seconds_of[c.solver])

    trials = Script(by_system, clock, planned=(10, 90)).measure("batched_cg double 4", "block_cgrq double 4")
    assert set(how(trials).values()) == {CONVERGED} and best(trials) == "block_cgrq double 4"


def test_plain_solves_are_not_dropped_for_low_modes_that_have_their_price(clock: Clock) -> None:
    script = Script(lambda c: {1: 0.1, 4: 0.5, 0: 4.0}[c.deflated], clock)
    lows = ("deflated ", "deflated/4 ", "")
    names = [f"{low}block_cgrq double {n}" for n in (16, 32) for low in lows]
    assert [str(Candidate.parse(name)) for name in names] == names
    assert set(how(script.measure(*names)).values()) == {CONVERGED}


def test_a_guess_counts_and_compilation_does_not(clock: Clock) -> None:
    """The guess takes 40 iterations' time: no pause that might be left out."""
    script = Script(lambda c: 0.4, clock, options=lambda c: {"guess": 4.0, "pause": 90.0})
    trials = script.measure("deflated batched_cg double 4")
    (measured,) = trials.done.values()
    assert measured.seconds_per_rhs == [pytest.approx(0.4 + 1.0)]


def test_the_least_of_several_short_solves_counts(clock: Clock) -> None:
    disturbed = iter([0.0, 5.0, 0.0, 0.3])

    class Disturbed(Scripted):
        def solve(self, *args: Any, **options: Any) -> Solution:
            self.clock.now += next(disturbed)
            return super().solve(*args, **options)

    watch = trial.Stopwatch()
    seconds, _ = trial.repeated(Disturbed(clock, 0.1), None, np.ones((2, 4)), watch)
    assert seconds == pytest.approx(5.1)  # not short
    disturbed = iter([0.0, 0.2, 0.0, 0.3])
    assert trial.repeated(Disturbed(clock, 0.1), None, np.ones((2, 4)), watch)[0] == pytest.approx(0.1)


def test_what_fails_is_not_taken_and_makes_nobody_impatient(clock: Clock) -> None:
    script = Script(
        lambda c: 0.001 if c.solver == "gcr" else 1.0,
        clock,
        options=lambda c: {"fails": c.solver == "gcr"},
        planned=(10, 10),
        impossible="multigrid",
    )
    names = ("gcr double 4", "multigrid double-single 4", "multigrid double 4", "bicgstab double 4")
    trials = script.measure(*names)
    assert script.made.count("multigrid") == 1
    assert best(trials) == "bicgstab double 4" and how(trials)["bicgstab double 4"] == CONVERGED
    assert how(trials)["gcr double 4"].startswith("system 0, 4 of 4 right-hand sides missed the tolerance")
    assert "linearly dependent" in how(trials)["multigrid double 4"]
    check_one_converged(how(trials), "go home")
    failed = {name: why for name, why in how(trials).items() if why != CONVERGED}
    with pytest.raises(InputError, match=r"tolerance \(gcr double 4: system 0, .*\): .*, or go home"):
        check_one_converged(failed, "go home")


def test_a_block_without_room_leaves_the_others_and_narrower_ones(clock: Clock) -> None:
    """Memory is short beside a solver, too, where no solver says so."""
    script = Script(
        lambda c: 0.5 if c.solver == "block_cgrq" else 1.0,
        clock,
        options=lambda c: {"room": 40 if c.solver == "block_cgrq" else np.inf},
    )
    trials = script.measure(*map(str, candidates(SOLVERS, "double", [48, 64, 24])))
    assert how(trials)["block_cgrq double 48"] == "memory is short"
    assert "block_cgrq double 64" not in how(trials) and best(trials) == "block_cgrq double 24"


def test_blocks_of_other_widths_are_not_tried_where_all_miss_the_tolerance(clock: Clock) -> None:
    script = Script(lambda c: 1.0, clock, options=lambda c: {"fails": True})
    assert len(script.measure(*map(str, candidates(SOLVERS, "double", [16, 32, 8, 4]))).done) == 2

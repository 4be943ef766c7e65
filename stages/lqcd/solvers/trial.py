"""Trials: what solvers take for blocks of right-hand sides, so that one can be chosen for a campaign.

A candidate is a solver in a precision and a width of blocks, with low modes or without. At the width asked
for all are tried, at others those that came near the best before. One that can no longer become the best is
dropped in the midst of its solve. What a solver compiles at its first call is no part of a trial: a setup is
made twice, and a solve at least twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.named import HALVES, PRECISIONS, Solve
from stages.lqcd.solvers.solution import NotConverged, Solution, Solver

PAUSE = 5.0
"""Times an ordinary iteration: what one takes beyond that is compilation, or another program."""
EVERY = 8
"""Iterations after which a solve is asked how long it took so far."""
PATIENCE = 1.3
"""Times the best candidate's seconds, after which another one is dropped."""
FIRST_PATIENCE = 2.0
"""The same at the width asked for, by which those are found that may be better at another one."""
LEAST = 0.5
"""Seconds that every solve has, and that shorter ones are repeated for: another program may disturb them."""
REPEATS = 10
"""Times that a short solve is repeated at most; the least time counts."""
WIDEST = 64
"""Right-hand sides of a block, as parameter files allow them."""
GAIN = 1.25
"""Least ratio of widths that are worth a comparison."""
CONVERGED = "converged"
FAILURES: tuple[type[Exception], ...] = (NotConverged, InputError, MemoryError)
"""Of a solver, which leave the others to be tried."""
DEFLATED = "deflated"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Candidate:
    """A solver of `stages.lqcd.solvers.named` in a precision, `block` right-hand sides at a time.

    deflated: 1 with all low modes of a space, n with the lowest 1/n of them, 0 without. Its name, `str`, is
    as ``deflated block_cgrq double 32``, or ``deflated/4 block_cgrq double 32``.
    """

    solver: str
    precision: str
    block: int
    deflated: int = 0

    def __str__(self) -> str:
        modes = {0: "", 1: f"{DEFLATED} "}.get(self.deflated, f"{DEFLATED}/{self.deflated} ")
        return f"{modes}{self.solver} {self.precision} {self.block}"

    @property
    def part(self) -> float:
        """The part of the low modes that it takes."""
        return 1 / self.deflated if self.deflated else 0.0

    @classmethod
    def parse(cls, name: str) -> Candidate:
        """The candidate of a name."""
        *modes, solver, precision, block = name.split()
        return cls(solver, precision, int(block), int(modes[0].partition("/")[2] or 1) if modes else 0)


def candidates(
    solvers: Sequence[str], precision: str, widths: Sequence[int], deflated: Sequence[int] = (0,)
) -> list[Candidate]:
    """All of these, in the order in which they are tried.

    That is by width, what needs no eigenvectors first, and from double on, whose solves do not stagnate: they
    bound the others' time. precision: the one asked for. None that is coarser is tried, and every finer one.
    """
    names = list(PRECISIONS)
    within = names[: names.index(precision) + 1]
    return [
        Candidate(solver, each, width, low)
        for width in widths
        for low in deflated
        for solver in solvers
        for each in within
        if each != "double-half" or solver in HALVES
    ]


def trial_widths(block: int, columns: int) -> list[int]:
    """Widths of blocks of so many columns of a chunk, the one asked for first, then wider and narrower ones.

    Wider and narrower ones by factors of two, twice at most, and such that blocks of a chunk are alike.
    """
    first, wider = min(block, columns), []
    for factor in (2, 4):
        blocks = -(-columns // min(factor * first, WIDEST, columns))
        wider.append(-(-columns // blocks))
    narrower = [first // 2, first // 4 if first >= 16 else 0]
    kept = [block]
    for sequence in (wider, narrower):
        last = first
        for width in sequence:
            if width and max(width, last) >= GAIN * min(width, last):
                kept.append(width)
                last = width
    return kept


@dataclass(frozen=True)
class TrialSystem:
    """Linear systems M x = b by name, of which a campaign solves `planned` per configuration.

    operator: M for a candidate's solves. sources: b of the widest block, ``[*, N]``; narrower ones take its
    first columns.
    """

    name: str
    operator: Callable[[Candidate], Any]
    sources: Array
    tolerance: float
    planned: int

    def block(self, candidate: Candidate) -> Array:
        """The right-hand sides that a candidate solves together."""
        return contiguous(self.sources[..., : candidate.block])


@dataclass
class Trial:
    """Measurements of a candidate on systems, in their order, up to one that failed.

    how: `CONVERGED`, or why it is not to be had. short: memory had no room for a block so wide.
    """

    setup_seconds: float = 0.0
    seconds_per_rhs: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    how: str = CONVERGED
    short: bool = False


class TooSlow(Exception):  # noqa: N818 - it reads as what it is
    """A solve took longer than another candidate leaves it."""


class Stopwatch:
    """A progress report that knows how long iterations take, and ends a solve that takes too long."""

    def __init__(self, limit: float = np.inf) -> None:
        self.limit, self.stamps = max(limit, LEAST), [0.0]

    def start(self) -> None:
        """Begin to count: from here on each call ends an iteration."""
        self.stamps = [time.perf_counter()]

    def __call__(self, iteration: int, residuals: Any) -> None:
        self.stamps.append(time.perf_counter())
        if len(self.stamps) % EVERY == 0 and self.seconds() > self.limit:
            raise TooSlow

    def seconds(self) -> float:
        """Without what an iteration took more than `PAUSE` times as long as the others."""
        steps = np.diff(self.stamps)
        return float(np.minimum(steps, PAUSE * np.median(steps)).sum()) if steps.size else 0.0


def repeated(solver: Solver, operator: Any, sources: Array, watch: Stopwatch) -> tuple[float, Solution]:
    """Seconds of a whole solve, guesses from low modes included, after a first one that compiles.

    The first one ends by the watch where it takes too long. A short one is repeated; its least time counts.
    """
    watch.start()
    solution = solver.solve(operator, sources, progress=watch)
    if watch.seconds() > watch.limit:
        raise TooSlow
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < LEAST:
        taken.append(_seconds(lambda: solver.solve(operator, sources), sources)[0])
    return min(taken), solution


@dataclass
class Trials:
    """Trials of candidates on systems, from the first candidate to the last.

    method: the solver of a candidate, for a tolerance, with what `setup` made for its solver, if that needs
    any; a setup is made and timed once for all candidates of a solver. failures: errors that mean no more
    than that a candidate is not to be had.
    """

    systems: Sequence[TrialSystem]
    method: Callable[[Candidate, float, Any], Solver]
    setup: Callable[[str], Any] = lambda solver: None
    failures: tuple[type[Exception], ...] = FAILURES
    done: dict[Candidate, Trial] = field(default_factory=dict)
    _setups: dict[str, tuple[float, Any]] = field(default_factory=dict)

    def measure(
        self, tried: Sequence[Candidate], progress: Callable[[int, int], None] = lambda *_: None
    ) -> dict[Candidate, Trial]:
        """The trials of those candidates that are worth one; the first has the width asked for."""
        first = tried[0].block
        widths = list(dict.fromkeys(each.block for each in tried))
        for number, candidate in enumerate(tried, start=1):
            if candidate.block == first or self._promising(candidate, widths):
                patience = FIRST_PATIENCE if candidate.block == first else PATIENCE
                self.done[candidate] = self._tried(candidate, patience)
            progress(number, len(tried))
        return self.done

    def cost(self, candidate: Candidate) -> float:
        """Seconds of a configuration, with the setup, without eigenvectors; infinite for a failure."""
        trial = self.done[candidate]
        if trial.how != CONVERGED:
            return np.inf
        return trial.setup_seconds + sum(self._by_system(trial.seconds_per_rhs))

    def _by_system(self, seconds_per_rhs: Sequence[float]) -> list[float]:
        return [s.planned * t for s, t in zip(self.systems, seconds_per_rhs, strict=True)]

    def _best(self, among: Callable[[Candidate], bool]) -> float:
        return min((self.cost(each) for each in self.done if among(each)), default=np.inf)

    def _promising(self, candidate: Candidate, widths: Sequence[int]) -> bool:
        """True if it came near the best at the width before, and that width is the best so far.

        One that had no room there is worth a trial of narrower blocks.
        """
        first, place = widths[0], widths.index(candidate.block)
        wider = candidate.block > first
        before = [w for w in widths[:place] if (w > first) == wider and w != first]
        last = before[-1] if before else first

        def alike(other: Candidate) -> bool:
            return other.deflated == candidate.deflated

        best = self._best(alike)
        of_last = self._best(lambda other: alike(other) and other.block == last)
        there = self.done.get(replace(candidate, block=last))
        if there is None or there.short:
            return there is not None and candidate.block < last
        beside = [w for w in widths[:place] if w not in (last, candidate.block)]
        leads = of_last <= self._best(lambda other: alike(other) and other.block in beside)
        return leads and self.cost(replace(candidate, block=last)) < FIRST_PATIENCE * best

    def _tried(self, candidate: Candidate, patience: float) -> Trial:
        trial = Trial()
        # low modes have their price, which a candidate with fewer of them is not to be dropped for
        best = self._best(lambda other: other.part <= candidate.part)
        try:
            trial.setup_seconds, made = self._made(candidate.solver)
            for number, system in enumerate(self.systems):
                sources = system.block(candidate)
                left = patience * best - trial.setup_seconds - self._others(trial, number)
                watch = Stopwatch(left / system.planned * sources.shape[-1])
                if left <= 0:
                    raise TooSlow
                solver = self.method(candidate, system.tolerance, made)
                seconds, solution = repeated(solver, system.operator(candidate), sources, watch)
                trial.seconds_per_rhs.append(seconds / sources.shape[-1])
                trial.iterations.append(int(solution.iterations))
                trial.residual.append(float(np.max(solution.residual)))
        except TooSlow:
            trial.how = f"dropped, as others take less ({system.name})"
        except self.failures as error:
            place = f"{self.systems[len(trial.iterations)].name}, " if len(self.systems) > 1 else ""
            trial.how = f"{place}{str(error) or 'memory is short'}"
            trial.short = isinstance(error, MemoryError)
        return trial

    def _others(self, trial: Trial, number: int) -> float:
        """Seconds of a configuration's systems but one: those before as they were, others at the least."""
        least = [
            min((t.seconds_per_rhs[k] for t in self.done.values() if t.how == CONVERGED), default=0.0)
            for k in range(len(self.systems))
        ]
        seconds = [*trial.seconds_per_rhs, *least[len(trial.seconds_per_rhs) :]]
        return sum(cost for k, cost in enumerate(self._by_system(seconds)) if k != number)

    def _made(self, solver: str) -> tuple[float, Any]:
        if solver not in self._setups:
            try:
                self.setup(solver)  # compiles
                self._setups[solver] = _seconds(lambda: self.setup(solver), self.systems[0].sources)
            except self.failures as error:
                self._setups[solver] = np.nan, error.with_traceback(None)  # its fields are free
        seconds, made = self._setups[solver]
        if isinstance(made, self.failures):
            raise made
        return seconds, made


def positive_solver(
    low_modes: Mapping[int, StaggeredSpace],
    max_iterations: int,
    candidate: Candidate,
    tolerance: float,
    _: Any,
) -> KrylovSolver | DeflatedSolver:
    """The solver of positive definite systems that a candidate names; low_modes: of `low_modes_of`."""
    solver = Solve(candidate.solver, tolerance, candidate.precision, max_iterations).of_positive()
    return DeflatedSolver(solver, low_modes[candidate.deflated]) if candidate.deflated else solver


def low_modes_of(names: Sequence[str], deflation: StaggeredSpace | None) -> dict[int, StaggeredSpace]:
    """Low modes of the candidates named, by `Candidate.deflated`. Raises InputError where there are none."""
    parts = {n: name for name in names if (n := Candidate.parse(name).deflated)}
    if deflation is None and parts:
        raise InputError(f"{next(iter(parts.values()))} needs low modes: give a deflation")
    return {n: deflation.lowest(max(1, len(deflation) // n)) for n in parts if deflation}


def check_one_converged(how: Mapping[str, str], remedy: str) -> None:
    """Raises InputError where no candidate of those named did; `how` as that of trials."""
    if CONVERGED not in how.values():
        reasons = "; ".join(f"{name}: {reason_of(why)}" for name, why in how.items())
        raise InputError(
            f"no solver reached the tolerance ({reasons}): raise max_iterations, loosen the tolerance, "
            f"or {remedy}"
        )


def reason_of(how: str) -> str:
    """The reason why a trial failed, without the remedy."""
    return how.split(": ")[0]


def _seconds(work: Callable[[], Result], like: Array) -> tuple[float, Result]:
    """How long something takes until a device has done it, and its result."""
    stream.finish(like)
    started = time.perf_counter()
    result = work()
    stream.finish(like)
    return time.perf_counter() - started, result

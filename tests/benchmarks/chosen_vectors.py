"""Compare the number of vectors that `deflation.vectors: auto` would choose with the best of a finer grid.

    python tests/benchmarks/chosen_vectors.py [--backend cuda] [--only CASE ...]

Each case is a quenched configuration with a light and a very heavy mass, on both parities. Trials are as
in a run: of all vectors, and parts of them. Beside them, every number of a finer grid is searched on its own,
and measured with its own vectors. Columns: right-hand sides per configuration; the part that would be chosen;
its seconds as predicted over those of its own search and solves; the best of the grid; what the chosen one
takes beyond it. Seconds are of the CPU, with NUMBA_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 best; on a GPU,
which has cases of its own, they are of the clock, and all is measured once.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from chosen_solvers import SUBSETS, seconds_of_the_processor
from pipeline import At
from script import PrintedTable, arguments_of
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import Masses
from stages.loops.deflation_space import deflation, deflation_space
from stages.loops.solver_trials import NoiseSample, TrialSolves, solver_trials
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.eigen import lanczos
from stages.lqcd.eigen.stored_vectors import searched_in_single
from stages.lqcd.noise import Noise
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.trial import Candidate
from stages.shared.solver_trials import Eigensolve, SolverTrials, cheapest, costs
from workflows.shared.deflation_section import PARTS

GRID = (1, 3 / 4, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16)
"""Parts of all vectors that are searched on their own."""
PLANNED = (2, 8, 32, 128)
"""Noise vectors per configuration, of `SUBSETS` subsets on each parity."""

ROUNDS = {"cpu": 2, "cuda": 1}
"""All is measured so often, and the least counts: other programs disturb processors for minutes."""


@dataclass(frozen=True)
class Case:
    """A system: extents, beta, the lighter mass, vectors that are searched, solver, precision and block."""

    extents: tuple[int, int, int, int]
    beta: float
    mass: float
    most: int
    tolerance: float = 1e-4
    solver: str = "batched_cg double-single 16"

    @property
    def label(self) -> str:
        """The case for people."""
        system = f"{'x'.join(map(str, self.extents))}, beta {self.beta}, m = {self.mass}"
        return f"{system}, {self.most} vectors to {self.tolerance:g}, {self.solver}"


CASES = {
    "cpu": (
        Case((8, 8, 8, 16), 5.7, 0.002, 128),
        Case((8, 8, 8, 16), 5.7, 0.02, 64, 1e-8, "block_cgrq double 16"),
        Case((8, 8, 8, 16), 6.0, 0.005, 64, 1e-8),
        Case((12, 12, 12, 24), 5.7, 0.02, 64),
        Case((6, 6, 6, 12), 5.6, 0.01, 64),
        Case((6, 6, 6, 12), 5.6, 0.01, 64, 1e-8),
    ),
    "cuda": (
        Case((16, 16, 16, 32), 5.7, 0.005, 256),
        Case((16, 16, 16, 32), 5.7, 0.05, 128),
        Case((16, 16, 16, 32), 6.0, 0.002, 128, 1e-8),
        Case((16, 16, 16, 32), 5.7, 0.005, 128, 1e-4, "block_cgrq double 16"),
        Case((24, 24, 24, 32), 5.7, 0.01, 256),
    ),
}


@dataclass(frozen=True)
class Measured:
    """Trials of some candidates, their record, and the search that they had."""

    trials: SolverTrials
    names: list[str]
    statistics: dict[str, Any]
    eigensolve: Eigensolve

    def least(self, other: Measured | None) -> Measured:
        """The shorter times of two measurements of the same."""
        if other is None:
            return self
        seconds = np.fmin(self.trials.seconds_per_rhs, other.trials.seconds_per_rhs)
        search = min(self.eigensolve, other.eigensolve, key=lambda each: each.seconds)
        return replace(self, trials=self.trials._replace(seconds_per_rhs=seconds), eigensolve=search)

    def costs(self, vectors: int) -> dict[str, float]:
        """Seconds by candidate for so many noise vectors."""
        measured = self.statistics["planned"]
        planned = {kind: vectors * SUBSETS if number else 0 for kind, number in measured.items()}
        return costs(self.trials, self.names, {**self.statistics, "planned": planned}, self.eigensolve)


def main() -> None:
    """Print the table."""
    given = arguments_of(__doc__, machine="cpu", options={"only": list(range(5))})
    backend = given.machine.backend
    table = PrintedTable("case", "rhs", "chosen", "predicted / measured", "best", "chosen / best")
    patient = patch.multiple(trial, PATIENCE=np.inf, FIRST_PATIENCE=np.inf, LEAST=0.4, REPEATS=6)
    for case in (CASES[backend][number] for number in given.only):
        with seconds_of_the_processor() if backend == "cpu" else nullcontext(), patient:
            rows(case, table, backend)


def rows(case: Case, table: PrintedTable, backend: str) -> None:
    """Measure a case, and add its rows."""
    at = At(config="choice.1", backend=backend)
    gauge = heatbath_configuration(
        at=at, extents=case.extents, beta=case.beta, seed=907, sweeps=20, overrelaxation=2
    )
    dslash = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    all_parts = [str(replace(Candidate.parse(case.solver), deflated=part)) for part in (0, *PARTS)]
    measure(case, dslash, max(1, case.most // 16), all_parts[-1:])  # compiles
    predicted: Measured | None = None
    own: dict[float, Measured] = {}
    for _ in range(ROUNDS[backend]):
        predicted = measure(case, dslash, case.most, all_parts).least(predicted)
        for part in GRID:
            alone = measure(case, dslash, int(case.most * part), all_parts[-1:])
            own[part] = alone.least(own.get(part))
    assert predicted
    for vectors in PLANNED:
        cost = predicted.costs(vectors)
        plain = cost.pop(case.solver)
        true = {part: min(each.costs(vectors).values()) for part, each in own.items()}
        for part in (each for each in GRID if 1 / each in PARTS):
            name = str(replace(Candidate.parse(case.solver), deflated=round(1 / part)))
            search = predicted.eigensolve.of(name, predicted.trials, all_parts), own[part].eigensolve.seconds
            seconds = "predicted {:.3g} s, own {:.3g} s; search {:.3g}, {:.3g}"
            text = seconds.format(cost[name], true[part], *search)
            print(f"# {case.most * part:g} vectors, {vectors} noise vectors: {text}", flush=True)
        chosen = cheapest(cost)
        part = Candidate.parse(chosen).part
        best = min(true, key=lambda each: true[each])
        least, taken = min(true[best], plain), true[part]
        rhs = 2 * vectors * SUBSETS
        if plain < cost[chosen]:
            part, taken = 0.0, plain
        ratio = cost[chosen] / true[part] if part else 1.0
        table.add(case.label, 2 * rhs, part, ratio, best if true[best] < plain else 0.0, taken / least)


def measure(case: Case, dslash: StaggeredDslash, vectors: int, names: list[str]) -> Measured:
    """Search for so many vectors, and trials of candidates with them."""
    backend = "cpu" if dslash.xp is np else "cuda"
    at, tried = (At(config="choice.1", backend=backend) for _ in range(2))
    with patch.object(lanczos, "time", trial.time):
        space = deflation_space(dslash, at=at, vectors=vectors, precision="single", tolerance=case.tolerance)
    trials = solver_trials(
        dslash,
        deflation(dslash, space, at=at),
        at=tried,
        candidates=names,
        masses=Masses(case.mass, 1.0),
        solves=TrialSolves(1e-9, None, [2, 0]),
        noise=Noise(55, "z2", {"displacement": 2}),
        sample=NoiseSample(2, 1),
    )
    search, single = at.statistics, searched_in_single("single", case.tolerance)
    precision = "double-single" if single else "double"
    eigensolve = Eigensolve(search["eigensolve_seconds"], search["matvecs"], precision)
    return Measured(trials, names, tried.statistics, eigensolve)


if __name__ == "__main__":
    main()

"""Compare the solver that `solver: auto` would choose with the best of all that it may try, for ten systems.

    python tests/benchmarks/chosen_solvers.py [--only CASE ...]

Each case is a quenched configuration with a light and a very heavy mass, on both parities. All candidates
are measured to their end, several times; the loss is what the chosen one takes beyond the best. Seconds are
of the CPU, so that other programs disturb little, with NUMBA_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 best.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from pipeline import At
from script import PrintedTable, arguments_of
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import Masses
from stages.loops.deflation_space import deflation, deflation_space
from stages.loops.solver_trials import NoiseSample, TrialSolves, solver_trials
from stages.lqcd.noise import Noise
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.named import POSITIVE
from stages.lqcd.solvers.trial import candidates, trial_widths
from stages.shared.solver_trials import Eigensolve, cheapest, costs

SUBSETS = 8
"""Of displacement 2, on each parity."""


@dataclass(frozen=True)
class Case:
    """A system: extents, beta, the lighter mass, the block asked for, noise vectors of a chunk, low modes."""

    extents: tuple[int, int, int, int]
    beta: float
    mass: float
    block: int
    vectors: int
    precision: str = "double-single"
    low_modes: int = 0

    @property
    def label(self) -> str:
        """The case for people."""
        low = f", {self.low_modes} low modes" if self.low_modes else ""
        size = "x".join(map(str, self.extents))
        return f"{size}, beta {self.beta}, m = {self.mass}, N = {self.block}, {self.precision}{low}"


CASES = (
    Case((4, 4, 4, 4), 5.8, 0.05, 16, 2),
    Case((4, 4, 4, 8), 5.7, 0.02, 8, 4, "double-half"),
    Case((4, 4, 4, 8), 6.2, 0.005, 16, 4),
    Case((6, 6, 6, 6), 5.9, 0.002, 24, 6, low_modes=12),
    Case((6, 6, 6, 12), 5.6, 0.01, 16, 2),
    Case((8, 8, 8, 8), 6.0, 0.002, 16, 2),
    Case((8, 8, 8, 8), 5.8, 0.03, 32, 8),
    Case((8, 8, 8, 12), 6.1, 0.005, 12, 3),
    Case((8, 8, 8, 16), 5.7, 0.002, 48, 6),
    Case((8, 8, 8, 16), 6.0, 0.05, 16, 4, low_modes=24),
)


class Loss(NamedTuple):
    """The chosen candidate, the best, what they take, and the seconds of trials, first and of all."""

    chosen: str
    best: str
    ratio: float
    tried: int
    of: int


def main() -> None:
    """Print the table."""
    only = arguments_of(__doc__, options={"only": list(range(len(CASES)))}).only
    table = PrintedTable("case", "chosen", "best", "chosen / best", "tried", "of")
    for case in (CASES[number] for number in only):
        table.add(case.label, *loss(case))


def loss(case: Case) -> Loss:
    """Choose a solver for a case, and measure all."""
    with seconds_of_the_processor():
        measured = costs_of(case)
        patient = patch.multiple(trial, PATIENCE=np.inf, FIRST_PATIENCE=np.inf, LEAST=0.4, REPEATS=12)
        with patient, patch.object(trial.Trials, "_promising", lambda *_: True):
            everything = costs_of(case)
    chosen, best = cheapest(measured), cheapest(everything)
    return Loss(chosen, best, everything[chosen] / everything[best], len(measured), len(everything))


def costs_of(case: Case) -> dict[str, float]:
    """Seconds per configuration of the candidates that a file of the case leaves, of low modes apart."""
    at = At(config="choice.1")
    gauge = heatbath_configuration(
        at=at, extents=case.extents, beta=case.beta, seed=907, sweeps=20, overrelaxation=2
    )
    dslash = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    upstream = []
    if case.low_modes:
        upstream = [deflation(dslash, deflation_space(dslash, at=at, vectors=case.low_modes), at=at)]
    names = candidates(
        tuple(POSITIVE),
        case.precision,
        trial_widths(case.block, SUBSETS * case.vectors),
        (False, True) if case.low_modes else (False,),
    )
    tried = At(config="choice.1")
    parameters: dict[str, Any] = {"candidates": [str(each) for each in names]}
    trials = solver_trials(
        dslash,
        *upstream,
        at=tried,
        masses=Masses(case.mass, 1.0),
        solves=TrialSolves(1e-9, None, [case.vectors, 0]),
        noise=Noise(55, "z2", {"displacement": 2}),
        sample=NoiseSample(case.vectors, 1),
        **parameters,
    )
    return costs(trials, parameters["candidates"], tried.statistics, Eigensolve())


@contextmanager
def seconds_of_the_processor() -> Iterator[None]:
    """Trials count the seconds that this process took of its processors."""
    with patch.object(trial, "time", SimpleNamespace(perf_counter=time.process_time)):
        yield


if __name__ == "__main__":
    main()

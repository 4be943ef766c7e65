"""The stage that measures solvers on the first sources of a campaign and takes the cheapest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, Keyed, Resources, stage
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.multigrid.multigrid import PoorSetup
from stages.lqcd.solvers.even_odd import EvenOdd, Method
from stages.lqcd.solvers.named import MULTIGRID, REGULAR, OpenSolve
from stages.lqcd.solvers.trial import FAILURES, TrialSystem, cheapest, check_one_converged, measure
from stages.mesons.costs import choice_cost
from stages.mesons.sources import FirstSources, Sources

SOLVERS = tuple(REGULAR)


class SolverChoice(NamedTuple):
    """Costs of each method for a block of right-hand sides; NaN where it failed, as its record says."""

    chosen: Annotated[np.ndarray, Dims()]
    """int64, position along `solver` of the cheapest."""
    setup_seconds: Annotated[np.ndarray, Dims("solver")]
    """Once per configuration."""
    seconds_per_rhs: Annotated[np.ndarray, Dims("solver")]
    iterations: Annotated[np.ndarray, Dims("solver")]
    residual: Annotated[np.ndarray, Dims("solver")]
    """Largest |b - A x| / |b| of the system solved."""


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("planned", "max_iterations", "block"), backend=True),
    labels={"solver": SOLVERS},
    cost=choice_cost,
)
def solver_choice(
    operator: WilsonOperator,
    sources: Chunks[Sources | FirstSources],
    *,
    at: At,
    planned: int,
    solves: OpenSolve,
    levels: Sequence[Mapping[str, Any]],
    seed: int,
) -> SolverChoice:
    """The cheapest method for `planned` right-hand sides per configuration, setup included.

    Each of `SOLVERS` solves the first block of columns of the sources; levels
    and seed are those of multigrid. The choice stands when a campaign grows: how many right-hand sides were
    planned when it was made is recorded, and is in no key; nor are timings reproducible. Raises InputError
    where no method reaches the tolerance.
    """
    _, first = next(iter(sources))
    fields = first.fields.reshape(*first.fields.shape[:3], -1)[..., : solves.block].copy()

    def method(name: str, tolerance: float) -> Method:
        hierarchy = multigrid_of(levels, seed).setup(operator) if name == MULTIGRID else None
        return EvenOdd(replace(solves, tolerance=tolerance).by(name).of_regular(hierarchy), WilsonSchur)

    measured = measure(
        [TrialSystem("first sources", operator, fields, solves.tolerance)],
        {name: partial(method, name) for name in SOLVERS},
        planned,
        failures=(*FAILURES, PoorSetup),
        progress=lambda *done: at.progress(*done),
    )
    trials = [trial for (trial,) in measured.values()]
    check_one_converged({trial.name: trial.how for trial in trials}, "use a smaller kappa (a larger mass)")
    chosen = cheapest(trials, planned)
    at.record(
        chosen=trials[chosen].name,
        planned=planned,
        columns=fields.shape[-1],
        how={trial.name: trial.how for trial in trials},
    )
    return SolverChoice(
        np.array(chosen),
        *(
            np.array([getattr(trial, name) for trial in trials])
            for name in ("setup_seconds", "seconds_per_rhs", "iterations", "residual")
        ),
    )

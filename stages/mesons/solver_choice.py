"""Stages that measure solvers on the first sources of a campaign, for Wilson-clover and staggered quarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import At, Chunks, FromParameter, Keyed, Resources, stage
from stages.ensemble.expected_solves import Layouts
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.multigrid.setup import PoorSetup
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import MULTIGRID, Solve
from stages.lqcd.solvers.solution import Solver
from stages.lqcd.solvers.trial import (
    FAILURES,
    Candidate,
    Trials,
    TrialSystem,
    low_modes_of,
    positive_solver,
)
from stages.mesons.costs import choice_cost, staggered_choice_cost
from stages.mesons.sources import FirstSources, Sources, StaggeredSources
from stages.shared.solver_trials import SolverTrials, measured

SYSTEMS = ("first sources",)
"""Kinds of linear systems: one."""


@dataclass(frozen=True)
class PlannedSolves:
    """Solves of a campaign, as `Solve` but for what is chosen.

    planned: right-hand sides per configuration.
    """

    tolerance: float
    planned: int
    max_iterations: int


@stage(
    version="2",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("planned", "max_iterations"), backend=True),
    labels={"solver": FromParameter("candidates"), "system": SYSTEMS},
    cost=choice_cost,
)
def solver_choice(
    operator: WilsonOperator,
    sources: Chunks[Sources | FirstSources],
    *,
    at: At,
    candidates: Sequence[str],
    solves: PlannedSolves,
    levels: Sequence[Mapping[str, Any]],
    seed: int,
) -> SolverTrials:
    """Seconds of `candidates` (`stages.lqcd.solvers.trial`) on the first columns of the sources.

    levels and seed are those of multigrid, which is set up once for all of its candidates. Timings are not
    reproducible. Raises InputError where no candidate reaches the tolerance.
    """

    def method(candidate: Candidate, tolerance: float, hierarchy: Any) -> Solver:
        solve = Solve(candidate.solver, tolerance, candidate.precision, solves.max_iterations)
        return EvenOdd(solve.of_regular(hierarchy), WilsonSchur)

    def setup(solver: str) -> Any:
        return multigrid_of(levels, seed).setup(operator) if solver == MULTIGRID else None

    fields, operators = _first_fields(sources, candidates), Layouts(operator).of
    system = TrialSystem(SYSTEMS[0], operators, fields, solves.tolerance, solves.planned)
    trials = Trials([system], method, setup, (*FAILURES, PoorSetup))
    return measured(at, trials, candidates, SYSTEMS, "use a smaller kappa (a larger mass)")


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("planned", "max_iterations"), backend=True),
    labels={"solver": FromParameter("candidates"), "system": SYSTEMS},
    cost=staggered_choice_cost,
)
def staggered_choice(
    operator: StaggeredDslash,
    sources: Chunks[StaggeredSources],
    deflation: StaggeredSpace | None = None,
    *,
    at: At,
    candidates: Sequence[str],
    solves: PlannedSolves,
    mass: float,
) -> SolverTrials:
    """Seconds of `candidates` for M = 2 m + D on the first columns; all else as for `solver_choice`."""
    low_modes = low_modes_of(candidates, deflation)
    layouts = Layouts(operator)

    def method(candidate: Candidate, tolerance: float, _: Any) -> Solver:
        solver = positive_solver(low_modes, solves.max_iterations, candidate, tolerance, _)
        return EvenOdd(solver, StaggeredSchur)

    def operator_for(candidate: Candidate) -> StaggeredOperator:
        return StaggeredOperator(layouts.of(candidate).astype(np.complex128), mass)

    fields = _first_fields(sources, candidates)
    system = TrialSystem(SYSTEMS[0], operator_for, fields, solves.tolerance, solves.planned)
    return measured(at, Trials([system], method), candidates, SYSTEMS, "use a larger mass")


def _first_fields(sources: Chunks[Any], candidates: Sequence[str]) -> Array:
    """The first columns of the first chunk of sources, as many as the widest block takes."""
    _, first = next(iter(sources))
    widest = max(Candidate.parse(name).block for name in candidates)
    return first.fields.reshape(*first.fields.shape[:3], -1)[..., :widest].copy()

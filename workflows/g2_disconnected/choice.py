"""`solver: auto` of the disconnected current: trials on the first configuration, and what follows from them.

Batched CG and block CGrQ are measured, each with and without the low modes of a section `deflation`; only
with them where an estimator averages them, or a target tries numbers of them: there they are needed anyway.
What a solver costs is the eigensolve of its low modes, as that configuration's took, and its seconds for all
right-hand sides planned per configuration, half of them on either parity. The campaign that follows is that
of a file that names the solver, without a section `deflation` if it is cheaper to solve without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pipeline import Plan, Store
from stages.loops.solver_trials import ACCURACIES, DEFLATED, PLAIN, PREFIX, SOLVERS, SolverTrials
from stages.lqcd.lattice.geometry import PARITIES
from stages.lqcd.solvers.named import precision_for
from stages.lqcd.solvers.trial import CONVERGED
from workflows.g2_disconnected.loops import SPACE
from workflows.g2_disconnected.schema import G2Parameters, low_modes_wanted

TRIALS = "solver_trials"
"""Name of the node."""


def candidates(parameters: G2Parameters) -> tuple[str, ...]:
    """The solvers that a file leaves to choose from."""
    if not parameters.deflation:
        return PLAIN
    return DEFLATED if low_modes_wanted(parameters) or parameters.target else SOLVERS


def chosen_solver(plan: Plan, store: Store) -> tuple[str, Iterable[str]]:
    """The cheapest solver by complete trials, and all that were tried."""
    chunks = {chunk.node.name: chunk for chunk in plan.chunks}
    records = {name: store.record(name, chunks[name].key) for name in (TRIALS, SPACE) if name in chunks}
    trials, statistics = SolverTrials(**store.load(TRIALS, chunks[TRIALS].key)), records[TRIALS]["statistics"]
    return cheapest(costs(trials, statistics, setup_seconds(records.get(SPACE)))), statistics["how"]


def cheapest(cost: Mapping[str, float]) -> str:
    """The name of the least."""
    return min(cost, key=lambda name: cost[name])


def costs(trials: SolverTrials, statistics: Mapping[str, Any], setup: float) -> dict[str, float]:
    """Seconds per configuration of each solver that converged; `setup` comes on top of deflated ones."""
    planned = np.array([[statistics["planned"][accuracy] / len(PARITIES)] for accuracy in ACCURACIES])
    return {
        name: (setup if name in DEFLATED else 0.0) + float(np.nansum(seconds * planned))
        for name, seconds in zip(SOLVERS, trials.seconds_per_rhs, strict=True)
        if statistics["how"].get(name) == CONVERGED
    }


def setup_seconds(space: Mapping[str, Any] | None) -> float:
    """Seconds of the eigensolve, by the record of a deflation space."""
    return float(space["statistics"]["eigensolve_seconds"]) if space else 0.0


def named(parameters: G2Parameters, chosen: str) -> G2Parameters:
    """The parameters of a file that says what was chosen."""
    solver = chosen.removeprefix(PREFIX)
    precision = precision_for(solver, parameters.solves.precision)
    solves = parameters.solves.model_copy(update={"solver": solver, "precision": precision})
    section = parameters.deflation if chosen in DEFLATED else None
    return parameters.model_copy(update={"solves": solves, "deflation": section})

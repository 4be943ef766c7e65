"""`solver: auto`: what is measured on the first configuration, and the campaign that follows from it.

Every solver is tried in the precision that the file asks for and in finer ones, at the width of blocks that
the file asks for and at wider or narrower ones, each without and with the low modes of a section `deflation`.
What one costs is its setup, the eigensolve of its low modes as that configuration's took, and its seconds for
all right-hand sides planned per configuration. The campaign that follows is that of a file that names solver,
precision and block, without a section `deflation` if it is cheaper to solve without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pipeline import Plan, Record, Store
from stages.lqcd.solvers.trial import Candidate
from stages.shared.solver_trials import SolverTrials, cheapest, costs
from workflows.shared.sections import WorkflowParameters

SPACE = "deflation_space"
"""Name of the node of eigenvectors, and of its stage."""

TRIALS = ("solver_trials", "solver_choice", "staggered_choice")
"""Stages that measure."""

Parameters = TypeVar("Parameters", bound=WorkflowParameters)


def costs_of(record: Record, arrays: Mapping[str, Any], space: Record | None) -> dict[str, float]:
    """Seconds per configuration of candidates, by the record of trials and that of a deflation space."""
    eigensolve = float(space.statistics["eigensolve_seconds"]) if space else 0.0
    return costs(SolverTrials(**arrays), record.parameters["candidates"], record.statistics, eigensolve)


def choose(parameters: Parameters, plan: Plan, store: Store) -> tuple[str, Parameters]:
    """Line for people on complete trials, and the parameters of a file that names what they chose."""
    chunks = {chunk.node.stage.name: chunk for chunk in plan.chunks}
    (trials,) = (chunks[name] for name in TRIALS if name in chunks)
    name = trials.node.stage.name
    record = Record.of(store.record(name, trials.key))
    space = Record.of(store.record(SPACE, chunks[SPACE].key)) if SPACE in chunks else None
    cost = costs_of(record, store.load(name, trials.key), space)
    best = cheapest(cost)
    text = (
        f"solver: {best} is the cheapest of {len(record.statistics['how'])} tried, "
        f"{cost[best]:.3g} s per configuration"
    )
    asked, solves = Candidate.parse(record.parameters["candidates"][0]), _solves(parameters)
    alike = {
        k: v for k, v in cost.items() if _settings(Candidate.parse(k)) == (solves.precision, asked.block)
    }
    if alike and best not in alike:
        other = cheapest(alike)
        text += f"; in the precision and block of the file, {other}: {alike[other]:.3g} s"
    return text, named(parameters, Candidate.parse(best))


def named(parameters: Parameters, chosen: Candidate) -> Parameters:
    """The parameters of a file that says what was chosen."""
    settings = {"solver": chosen.solver, "precision": chosen.precision, "block": chosen.block}
    update: dict[str, Any] = {"solves": _solves(parameters).model_copy(update=settings)}
    if not chosen.deflated and getattr(parameters, "deflation", None):
        update["deflation"] = None
    return parameters.model_copy(update=update)


def _solves(parameters: Any) -> Any:
    """The section `solves`, which files of all workflows with a choice have."""
    return parameters.solves


def _settings(candidate: Candidate) -> tuple[str, int]:
    return candidate.precision, candidate.block

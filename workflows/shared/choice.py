"""`solver: auto`: what is measured on the first configuration, and the campaign that follows from it.

Every solver is tried in the precision that the file asks for and in finer ones, at the width of blocks that
the file asks for and at wider or narrower ones, each without and with the low modes of a section `deflation`.
With `deflation.vectors: auto` the most vectors are searched, and a half, a quarter and an eighth of them are
tried, too. What one costs is its setup, the eigensolve of its low modes as that configuration's took, and its
seconds for all right-hand sides planned per configuration. The campaign that follows is that of a file that
names solver, precision, block and vectors, without a section `deflation` if it is cheaper to solve without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pipeline import Plan, Record, Store
from stages.lqcd.eigen.stored_vectors import searched_in_single
from stages.lqcd.solvers.trial import Candidate
from stages.shared.solver_trials import Eigensolve, SolverTrials, cheapest, costs
from workflows.shared.sections import WorkflowParameters

SPACE = "deflation_space"
"""Name of the node of eigenvectors, and of its stage."""

SPACE_OF_TRIALS = "deflation_space_of_trials"
"""Name of the node of those that solvers are measured with, where a campaign has fewer."""

TRIALS = ("solver_trials", "solver_choice", "staggered_choice")
"""Stages that measure."""

Parameters = TypeVar("Parameters", bound=WorkflowParameters)


def costs_of(record: Record, arrays: Mapping[str, Any], space: Record | None) -> dict[str, float]:
    """Seconds per configuration of candidates, by the record of trials and that of a deflation space."""
    names, statistics = record.parameters["candidates"], record.statistics
    return costs(SolverTrials(**arrays), names, statistics, eigensolve_of(space))


def eigensolve_of(space: Record | None) -> Eigensolve:
    """What the search for a deflation space took, without kernels that were compiled; nothing for None."""
    if space is None:
        return Eigensolve()
    statistics, parameters = space.without_kernels("eigensolve_seconds"), space.parameters
    single = searched_in_single(parameters["precision"], parameters["tolerance"])
    precision = "double-single" if single else "double"
    return Eigensolve(float(statistics["eigensolve_seconds"]), statistics["matvecs"], precision)


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
    chosen, searched = Candidate.parse(best), space.parameters["vectors"] if space else 0
    section: Any = getattr(parameters, "deflation", None)
    if chosen.deflated and section.vectors is None:
        text += f"; deflation.vectors: {searched // chosen.deflated}"
        if chosen.deflated == 1:
            text += ", all that were searched: with a larger deflation.most, more may be cheaper"
    return text, named(parameters, chosen, searched)


def named(parameters: Parameters, chosen: Candidate, searched: int = 0) -> Parameters:
    """The parameters of a file that says what was chosen; searched: eigenvectors that trials had."""
    settings = {"solver": chosen.solver, "precision": chosen.precision, "block": chosen.block}
    update: dict[str, Any] = {"solves": _solves(parameters).model_copy(update=settings)}
    if section := getattr(parameters, "deflation", None):
        update["deflation"] = section.chosen(searched // chosen.deflated) if chosen.deflated else None
    return parameters.model_copy(update=update)


def _solves(parameters: Any) -> Any:
    """The section `solves`, which files of all workflows with a choice have."""
    return parameters.solves


def _settings(candidate: Candidate) -> tuple[str, int]:
    return candidate.precision, candidate.block

"""`solver: auto` of the disconnected current: trials on the first configuration, and what follows from them.

Batched CG and block CGrQ are measured, each with and without the low modes of a section `deflation`; only
with them where an estimator averages them, or a target tries numbers of them: there they are needed anyway.
What a solver costs is the eigensolve of its low modes, as that configuration's took, and its seconds for all
right-hand sides planned per configuration. The campaign that follows is that of a file that names the solver,
without a section `deflation` if it is cheaper to solve without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline import Cost, Node, Place, Plan, Store, Workflow
from stages.loops.deflation_space import deflation
from stages.loops.solver_trials import (
    ACCURACIES,
    DEFLATED,
    PLAIN,
    PREFIX,
    SOLVERS,
    SolverTrials,
    solver_trials,
)
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.trial import CONVERGED
from workflows.catalogue import Project, Step
from workflows.g2_disconnected.deflation import add_space
from workflows.g2_disconnected.loops import basis_bytes, columns_of, device_memory, low_modes_wanted
from workflows.g2_disconnected.schema import G2Disconnected
from workflows.shared import footprint

TRIALS, SPACE = "solver_trials", "deflation_space"
"""Names of nodes."""


def add_trials(workflow: Workflow, parameters: G2Disconnected, links: Node, lattice: Lattice) -> None:
    """The solvers on the first noise of the first configuration, with its low modes."""
    first = {"config": links.over["config"][:1]}
    solves, noise, fine = parameters.solves, parameters.noise, parameters.solves.fine
    upstream, columns = [links], columns_of(parameters)
    if parameters.deflation:
        upstream.append(_low_modes(workflow, parameters, links, lattice, first))
    workflow.add(
        solver_trials,
        *upstream,
        place=Place(
            name=TRIALS,
            over=first,
            cost=Cost(
                memory=footprint.solving_memory(lattice, solves.block, columns)
                + basis_bytes(parameters, lattice),
                device_memory=device_memory(parameters, lattice, columns),
                stored=footprint.RECORD,
            ),
        ),
        candidates=candidates(parameters),
        **parameters.masses.model_dump(),
        sloppy=solves.sloppy.tolerance,
        fine=fine.tolerance if fine else None,
        planned=[count * noise.probes for count in (noise.vectors, fine.vectors if fine else 0)],
        seed=noise.seed,
        noise=noise.kind,
        vectors=noise.chunk,
        probes=noise.probe_chunk,
        dilution=noise.dilution.options(),
        deflated_noise=parameters.estimator.low_modes,
        **solves.model_dump(include={"precision", "max_iterations", "block"}),
    )


def _low_modes(
    workflow: Workflow,
    parameters: G2Disconnected,
    links: Node,
    lattice: Lattice,
    over: Mapping[str, Sequence[Any]],
) -> Node:
    """All vectors of the space, which the campaign may have already, and may use fewer of."""
    section = parameters.deflation
    assert section is not None
    space = workflow.nodes.get(SPACE) or add_space(workflow, section, links, lattice, over)
    kept = basis_bytes(parameters, lattice)
    return workflow.add(
        deflation,
        links,
        space,
        place=Place(name="deflation_of_trials", over=over, cost=Cost(device_memory=kept)),
    )


def candidates(parameters: G2Disconnected) -> tuple[str, ...]:
    """The solvers that a file leaves to choose from."""
    if not parameters.deflation:
        return PLAIN
    return DEFLATED if low_modes_wanted(parameters) or parameters.target else SOLVERS


def campaign_with_choice(
    parameters: G2Disconnected, campaign: Callable[[G2Disconnected], Project], plan: Plan, store: Store
) -> Step:
    """What complete trials lead to; campaign: the project of parameters that name a solver."""
    chunks = {chunk.node.name: chunk for chunk in plan.chunks}
    records = {name: store.record(name, chunks[name].key) for name in (TRIALS, SPACE) if name in chunks}
    found, said = SolverTrials(**store.load(TRIALS, chunks[TRIALS].key)), records[TRIALS]["statistics"]
    chosen = cheapest(costs(found, said, setup_seconds(records.get(SPACE))))
    text = f"solver: {chosen} is the cheapest of {', '.join(said['how'])}"
    return Step(text, met=True, project=campaign(named(parameters, chosen)))


def cheapest(cost: Mapping[str, float]) -> str:
    """The name of the least."""
    return min(cost, key=lambda name: cost[name])


def costs(found: SolverTrials, said: Mapping[str, Any], setup: float) -> dict[str, float]:
    """Seconds per configuration of each solver that converged; `setup` comes on top of deflated ones."""
    planned = np.array([said["planned"][accuracy] for accuracy in ACCURACIES])
    return {
        name: (setup if name in DEFLATED else 0.0) + float(np.nansum(seconds * planned))
        for name, seconds in zip(SOLVERS, found.seconds_per_rhs, strict=True)
        if said["how"].get(name) == CONVERGED
    }


def setup_seconds(space: Mapping[str, Any] | None) -> float:
    """What the eigensolve took, by the record of a deflation space."""
    return float(space["statistics"]["eigensolve_seconds"]) if space else 0.0


def named(parameters: G2Disconnected, chosen: str) -> G2Disconnected:
    """The parameters of a file that says what was chosen."""
    solves = parameters.solves.model_copy(update={"solver": chosen.removeprefix(PREFIX)})
    section = parameters.deflation if chosen in DEFLATED else None
    return parameters.model_copy(update={"solves": solves, "deflation": section})

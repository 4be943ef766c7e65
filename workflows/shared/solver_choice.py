"""`solver: auto` of workflows with Wilson-clover quarks: a round that chooses, and what follows from it.

The first round measures the solvers on the first configuration's first sources. The second one, the campaign,
names the one chosen: its keys are those of a file that names it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pipeline import Cost, Node, Place, Plan, Store, Workflow
from stages.lqcd.lattice.geometry import Lattice
from stages.mesons.solver_choice import solver_choice
from workflows.catalogue import Project, Step
from workflows.laph_mesons.schema import LaphMesons
from workflows.mesons import footprint as meson_footprint
from workflows.mesons.schema import Mesons
from workflows.shared import footprint
from workflows.shared.quark import hierarchy_options

CHOICE = "solver_choice"
"""Name of the node."""

Parameters = TypeVar("Parameters", Mesons, LaphMesons)


def add_choice(
    workflow: Workflow,
    parameters: Mesons | LaphMesons,
    operator: Node,
    sources: Node,
    lattice: Lattice,
    *,
    planned: int,
    memory: int,
    device_memory: int,
) -> None:
    """The solvers on the first chunk of `sources` of the first configuration.

    planned: right-hand sides per configuration. memory, device_memory: of a task that solves, in bytes,
    without a hierarchy.
    """
    options = hierarchy_options(parameters.multigrid, lattice)
    setup = meson_footprint.setup_device_memory(lattice, options["levels"])
    workflow.add(
        solver_choice,
        operator,
        sources,
        place=Place(
            name=CHOICE,
            over={"config": operator.over["config"][:1]},
            cost=Cost(memory=memory + setup, device_memory=device_memory + setup, stored=footprint.RECORD),
        ),
        planned=planned,
        **parameters.solves.model_dump(exclude={"solver"}),
        **options,
    )


def campaign_with_choice(
    parameters: Parameters, campaign: Callable[[Parameters], Project], plan: Plan, store: Store
) -> Step:
    """What a complete choice leads to; campaign: the project of parameters that name a solver."""
    (chunk,) = (chunk for chunk in plan.chunks if chunk.node.name == CHOICE)
    said = store.record(chunk.node.stage.name, chunk.key)["statistics"]
    solves = parameters.solves.model_copy(update={"solver": said["chosen"]})
    text = f"solver: {said['chosen']} is the cheapest of {', '.join(said['how'])}"
    return Step(text, met=True, project=campaign(parameters.model_copy(update={"solves": solves})))

"""Nodes that estimate loops: of the main estimator of a workflow file, and of its alternatives."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline import Cost, Node, Place, Workflow
from stages.loops.current_loops import FLAVOURS, current_loops, exact_loops, flavour_loops, split_even_loops
from stages.loops.low_mode_loops import low_mode_loops, with_low_modes
from stages.lqcd.estimators.low_modes import SLAB
from stages.lqcd.lattice.geometry import Lattice
from workflows.g2_disconnected.schema import G2Disconnected, alternatives
from workflows.shared import footprint

MASSES = ("light", "strange")
DIRECTIONS = {"hisq": 16, "naive": 8}
"""Neighbours of a site in the operator."""


class Upstream(NamedTuple):
    """What loops are made of: the operator, and the deflation and mode currents where there are any."""

    links: Node
    deflation: Node | None = None
    modes: Node | None = None


def add_low_modes(
    workflow: Workflow,
    parameters: G2Disconnected,
    deflation: Node | None,
    lattice: Lattice,
    name: str = "low_modes",
) -> Node | None:
    """Currents of the modes, where the estimator or an alternative takes them."""
    if not deflation or not parameters.deflation or not low_modes_wanted(parameters):
        return None
    return workflow.add(
        low_mode_loops,
        deflation,
        place=Place(
            name=name,
            cost=Cost(
                memory=footprint.solving_memory(lattice, SLAB, 0) + basis_bytes(parameters, lattice),
                device_memory=device_memory(parameters, lattice, SLAB),
                stored=footprint.loops_bytes(lattice, parameters.deflation.vectors),
            ),
        ),
        current_links=parameters.current.links,
    )


def low_modes_wanted(parameters: G2Disconnected) -> bool:
    """Whether the estimator or an alternative averages low modes."""
    return any(each.estimator.low_modes for _, each in (("", parameters), *alternatives(parameters)))


def add_estimator(
    workflow: Workflow, parameters: G2Disconnected, upstream: Upstream, lattice: Lattice, prefix: str = ""
) -> list[Node]:
    """Loops of all flavours: of all noise vectors, sloppy, and of the first few, fine, where there are any.

    Where low modes are averaged, the nodes that solve keep the noisy remainder, and what is returned is the
    sum with the exact part.
    """
    nodes = []
    for fine in (False, True) if parameters.solves.fine else (False,):
        flavours = _flavours(workflow, parameters, upstream, lattice, prefix, fine)
        if parameters.estimator.low_modes and upstream.modes:
            masses = parameters.masses.model_dump()
            name = _named(f"{prefix}all_modes", fine)
            flavours = workflow.add(
                with_low_modes, flavours, upstream.modes, place=Place(name=name), **masses
            )
        nodes.append(flavours)
    return nodes


def _flavours(
    workflow: Workflow,
    parameters: G2Disconnected,
    upstream: Upstream,
    lattice: Lattice,
    prefix: str,
    fine: bool,
) -> Node:
    """Noisy loops of light, strange, and light - strange."""
    inputs = [upstream.links]
    if upstream.deflation and parameters.deflation:
        inputs.append(upstream.deflation)
    noisy, columns = _noisy(parameters, fine), columns_of(parameters)
    if parameters.estimator.difference == "split_even":
        return workflow.add(
            split_even_loops,
            *inputs,
            place=_place(parameters, lattice, fine, f"{prefix}loops_split_even", len(FLAVOURS) * columns),
            **parameters.masses.model_dump(),
            **noisy,
        )
    masses = [
        workflow.add(
            current_loops,
            *inputs,
            place=_place(parameters, lattice, fine, f"{prefix}loops_{mass}", columns),
            mass=getattr(parameters.masses, mass),
            **noisy,
        )
        for mass in MASSES
    ]
    return workflow.add(flavour_loops, *masses, place=Place(name=_named(f"{prefix}flavours", fine)))


def basis_bytes(parameters: G2Disconnected, lattice: Lattice) -> int:
    """Bytes of the vectors that solves are deflated with."""
    deflation = parameters.deflation
    return footprint.basis_bytes(lattice, deflation.vectors, deflation.precision) if deflation else 0


def add_exact_loops(
    workflow: Workflow, parameters: G2Disconnected, links: Node, lattice: Lattice, mass: str
) -> Node:
    """Loops of one mass by a point source on every site and colour."""
    solves = parameters.solves
    return workflow.add(
        exact_loops,
        links,
        place=Place(
            name=f"exact_{mass}",
            cost=Cost(
                memory=footprint.solving_memory(lattice, solves.block, 0),
                device_memory=device_memory(parameters, lattice, 0),
                stored=footprint.loops_bytes(lattice, 1),
            ),
        ),
        mass=getattr(parameters.masses, mass),
        tolerance=(solves.fine or solves.sloppy).tolerance,
        **_solving(parameters),
    )


def operator_of(parameters: G2Disconnected) -> tuple[int, str, bool]:
    """What its memory depends on: directions, precision, whether narrow blocks occur."""
    solves = parameters.solves
    narrow = solves.block <= footprint.NARROW or solves.solver != "block_cgrq"
    return DIRECTIONS[parameters.links.action], solves.precision, narrow


def _named(name: str, fine: bool) -> str:
    return f"{name}_fine" if fine else name


def columns_of(parameters: G2Disconnected) -> int:
    """Noise vectors times probes of a chunk."""
    return parameters.noise.chunk * parameters.noise.probe_chunk


def _place(parameters: G2Disconnected, lattice: Lattice, fine: bool, name: str, loops: int) -> Place:
    """Coordinates and cost of stochastic loops, of which a chunk holds so many."""
    noise, solves, columns = parameters.noise, parameters.solves, columns_of(parameters)
    vectors = solves.fine.vectors if fine and solves.fine else noise.vectors
    return Place(
        name=_named(name, fine),
        over={"noise": range(vectors), "probe": range(noise.probes)},
        chunk={"noise": noise.chunk, "probe": noise.probe_chunk},
        cost=Cost(
            memory=footprint.solving_memory(lattice, solves.block, columns)
            + basis_bytes(parameters, lattice),
            device_memory=device_memory(parameters, lattice, columns),
            stored=footprint.loops_bytes(lattice, loops),
        ),
    )


def _noisy(parameters: G2Disconnected, fine: bool) -> dict[str, Any]:
    """Parameters of stochastic loops."""
    noise, solves = parameters.noise, parameters.solves
    accuracy = solves.fine if fine and solves.fine else solves.sloppy
    return {
        "noise": noise.kind,
        "seed": noise.seed,
        "dilution": noise.dilution.options(),
        "tolerance": accuracy.tolerance,
        "deflated_noise": parameters.estimator.low_modes,
        **_solving(parameters),
    }


def device_memory(parameters: G2Disconnected, lattice: Lattice, vectors: int) -> int:
    """Of a task that solves, with this many noise vectors."""
    block = parameters.solves.block
    return footprint.solving_device_memory(lattice, *operator_of(parameters), block, vectors)


def _solving(parameters: G2Disconnected) -> dict[str, Any]:
    """Parameters that noisy and exact loops share."""
    return {
        "current_links": parameters.current.links,
        **parameters.solves.model_dump(include={"solver", "precision", "max_iterations", "block"}),
    }

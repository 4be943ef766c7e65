"""Nodes that estimate loops: of the main estimator of a workflow file, and of its alternatives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from pipeline import Node
from pipeline.declare.coordinates import Coordinate
from stages.ensemble.staggered_operator import ACTIONS
from stages.loops.current_loops import (
    FLAVOURS,
    Masses,
    current_loops,
    exact_loops,
    flavour_loops,
    split_even_loops,
)
from stages.loops.deflation_space import deflation_space
from stages.loops.low_mode_loops import low_mode_loops, with_low_modes
from stages.lqcd.estimators.low_modes import SLAB
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve
from workflows.g2_disconnected.schema import DeflationSection, G2Parameters, low_modes_wanted
from workflows.shared import footprint
from workflows.shared.definition import Nodes


class Modes(NamedTuple):
    """The deflation that solves take, and the currents of its modes, where there are any."""

    deflation: Node | None = None
    currents: Node | None = None


class LoopNodes(Nodes[G2Parameters]):
    """The operator, its low modes, and loops."""

    @cached_property
    def links(self) -> Node:
        """The fermion's operator."""
        links = self.parameters.links
        kept = footprint.operator_device_memory(self.lattice, *operator_of(self.parameters))
        action = ACTIONS[links.action]
        return self.add(
            action.stage,
            self.configuration,
            name="links",
            device_memory=kept,
            boundary=links.boundary,
            **links.model_dump(include=set(action.options)),
        )

    def space(self, section: DeflationSection, over: Mapping[str, Sequence[Coordinate]] = {}) -> Node:
        """The eigenvectors in the store, of all configurations unless `over` says of which; added once."""
        if node := self.workflow.nodes.get("deflation_space"):
            return node
        sizes = (self.lattice, section.vectors, section.block)
        return self.add(
            deflation_space,
            self.links,
            over=over,
            memory=footprint.eigensolve_memory(*sizes),
            device_memory=footprint.eigensolve_device_memory(*sizes),
            stored=footprint.space_bytes(self.lattice, section.vectors, section.precision),
            fits=partial(_vectors_that_fit, section, self.lattice),
            **section.model_dump(),
        )

    def modes(self, parameters: G2Parameters, deflation: Node | None, suffix: str = "") -> Modes:
        """A deflation, with currents of its modes where the estimator or an alternative takes them."""
        if not deflation or not low_modes_wanted(parameters):
            return Modes(deflation)
        currents = self.add(
            low_mode_loops,
            deflation,
            name=f"low_modes{suffix}",
            memory=footprint.solving_memory(self.lattice, SLAB, 0) + basis_bytes(parameters, self.lattice),
            device_memory=device_memory(parameters, self.lattice, SLAB),
            stored=footprint.loops_bytes(
                self.lattice, parameters.deflation.vectors if parameters.deflation else 0
            ),
            current_links=parameters.current.links,
        )
        return Modes(deflation, currents)

    def estimator(self, parameters: G2Parameters, modes: Modes, prefix: str = "") -> list[Node]:
        """Loops of all flavours: of all noise vectors, sloppy, and of the first few, fine, if there are any.

        Where low modes are averaged, the nodes that solve keep the noisy remainder, and what is returned is
        the sum with the exact part.
        """
        nodes = []
        for suffix in ("", "_fine") if parameters.solves.fine else ("",):
            flavours = self._flavours(parameters, modes, prefix, suffix)
            if parameters.estimator.low_modes and modes.currents:
                masses, name = masses_of(parameters), f"{prefix}all_modes{suffix}"
                flavours = self.add(with_low_modes, flavours, modes.currents, name=name, masses=masses)
            nodes.append(flavours)
        return nodes

    def _flavours(self, parameters: G2Parameters, modes: Modes, prefix: str, suffix: str) -> Node:
        """Noisy loops of light, strange, and light - strange."""
        inputs = [self.links]
        if modes.deflation and parameters.deflation:
            inputs.append(modes.deflation)
        noisy, columns = self._noisy(parameters, fine=bool(suffix)), columns_of(parameters)
        if parameters.estimator.difference == "split_even":
            return self.add(
                split_even_loops,
                *inputs,
                name=f"{prefix}loops_split_even{suffix}",
                stored=footprint.loops_bytes(self.lattice, len(FLAVOURS) * columns),
                masses=masses_of(parameters),
                **noisy,
            )
        loops = [
            self.add(
                current_loops,
                *inputs,
                name=f"{prefix}loops_{name}{suffix}",
                stored=footprint.loops_bytes(self.lattice, columns),
                mass=mass,
                **noisy,
            )
            for name, mass in parameters.masses.model_dump().items()
        ]
        return self.add(flavour_loops, *loops, name=f"{prefix}flavours{suffix}")

    def _noisy(self, parameters: G2Parameters, *, fine: bool) -> dict[str, Any]:
        """Coordinates, memory and parameters of stochastic loops."""
        noise, solves, columns = parameters.noise, parameters.solves, columns_of(parameters)
        accuracy = solves.fine if fine and solves.fine else solves.sloppy
        vectors = solves.fine.vectors if fine and solves.fine else noise.vectors
        return {
            "over": {"noise": range(vectors), "probe": range(noise.probes)},
            "chunk": {"noise": noise.chunk, "probe": noise.probe_chunk},
            "memory": footprint.solving_memory(self.lattice, solves.block, columns)
            + basis_bytes(parameters, self.lattice),
            "device_memory": device_memory(parameters, self.lattice, columns),
            "noise": Noise(noise.seed, noise.kind, noise.dilution.options()),
            "solve": solve_to(parameters, accuracy.tolerance),
            "current_links": parameters.current.links,
            "deflated_noise": parameters.estimator.low_modes,
        }

    def exact_loops(self) -> None:
        """Loops of each mass by a point source on every site and colour."""
        parameters, solves = self.parameters, self.parameters.solves
        for name, mass in parameters.masses.model_dump().items():
            self.add(
                exact_loops,
                self.links,
                name=f"exact_{name}",
                memory=footprint.solving_memory(self.lattice, solves.block, 0),
                device_memory=device_memory(parameters, self.lattice, 0),
                stored=footprint.loops_bytes(self.lattice, 1),
                mass=mass,
                solve=solve_to(parameters, (solves.fine or solves.sloppy).tolerance),
                current_links=parameters.current.links,
            )


def masses_of(parameters: G2Parameters) -> Masses:
    """The masses as stages take them."""
    return Masses(**parameters.masses.model_dump())


def solve_to(parameters: G2Parameters, tolerance: float) -> Solve:
    """How systems are solved, as stages take it."""
    options = parameters.solves.model_dump(include={"solver", "precision", "max_iterations", "block"})
    return Solve(tolerance=tolerance, **options)


def basis_bytes(parameters: G2Parameters, lattice: Lattice) -> int:
    """Bytes of the vectors that solves are deflated with."""
    deflation = parameters.deflation
    return footprint.basis_bytes(lattice, deflation.vectors, deflation.precision) if deflation else 0


def operator_of(parameters: G2Parameters) -> tuple[int, str, bool]:
    """What its memory depends on: directions, precision, whether narrow blocks occur."""
    solves = parameters.solves
    narrow = solves.block <= footprint.NARROW or solves.solver != "block_cgrq"
    return ACTIONS[parameters.links.action].directions, solves.precision, narrow


def columns_of(parameters: G2Parameters) -> int:
    """Noise vectors times probes of a chunk."""
    return parameters.noise.chunk * parameters.noise.probe_chunk


def device_memory(parameters: G2Parameters, lattice: Lattice, vectors: int) -> int:
    """Of a task that solves, with this many noise vectors."""
    block = parameters.solves.block
    return footprint.solving_device_memory(lattice, *operator_of(parameters), block, vectors)


def _vectors_that_fit(section: DeflationSection, lattice: Lattice, room: int, on_device: bool) -> str:
    """What to write for `deflation.vectors` where a task has so many bytes."""
    projected = footprint.eigensolve_device_memory if on_device else footprint.eigensolve_memory
    counts = range(1, section.vectors + 1)
    most = bisect_right(counts, room, key=lambda vectors: projected(lattice, vectors, section.block))
    if not most:
        return "not even one deflation vector fits"
    return f"{most} vectors fit: lower `deflation.vectors`, {section.vectors}"

"""Nodes that estimate loops: of the main estimator of a workflow file, and of its alternatives."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from pipeline import Node, Place
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import ACTIONS
from stages.loops.current_loops import Masses, current_loops, exact_loops, flavour_loops, split_even_loops
from stages.loops.low_mode_loops import low_mode_loops, with_low_modes
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve
from workflows.g2_disconnected.schema import G2Parameters, low_modes_wanted
from workflows.shared.staggered_quarks import StaggeredDefinition


class Modes(NamedTuple):
    """The deflation that solves take, and the currents of its modes, where there are any."""

    deflation: Node | None = None
    currents: Node | None = None


class LoopNodes(StaggeredDefinition[G2Parameters]):
    """The operator, its low modes, and loops."""

    @cached_property
    def operator(self) -> Node:
        """The fermion's operator."""
        links, solves = self.parameters.links, self.parameters.solves
        action = ACTIONS[links.action]
        return self.workflow.add(
            action.stage,
            self.configuration,
            place=Place("operator"),
            boundary=links.boundary,
            solves=ExpectedSolves(solves.solver, solves.precision, solves.block),
            **links.model_dump(include=set(action.options)),
        )

    def modes(self, parameters: G2Parameters, deflation: Node | None, suffix: str = "") -> Modes:
        """A deflation, with currents of its modes where the estimator or an alternative takes them."""
        if not deflation or not low_modes_wanted(parameters):
            return Modes(deflation)
        currents = self.workflow.add(
            low_mode_loops,
            deflation,
            place=Place(f"low_modes{suffix}"),
            current_links=parameters.current.links,
        )
        return Modes(deflation, currents)

    def estimator(self, parameters: G2Parameters, modes: Modes, prefix: str = "") -> list[Node]:
        """Loops of all flavours: of all noise vectors, sloppy, and of the first few, fine, if there are any.

        Where low modes are averaged, the nodes that solve keep the noisy remainder, and what is returned is
        the sum with the exact part.
        """
        nodes, masses = [], Masses(**parameters.masses.model_dump())
        for suffix in ("", "_fine") if parameters.solves.fine else ("",):
            flavours = self._flavours(parameters, modes, prefix, suffix)
            if parameters.estimator.low_modes and modes.currents:
                place = Place(f"{prefix}all_modes{suffix}")
                flavours = self.workflow.add(
                    with_low_modes, flavours, modes.currents, place=place, masses=masses
                )
            nodes.append(flavours)
        return nodes

    def _flavours(self, parameters: G2Parameters, modes: Modes, prefix: str, suffix: str) -> Node:
        """Noisy loops of light, strange, and light - strange."""
        inputs = [self.operator]
        if modes.deflation and parameters.deflation:
            inputs.append(modes.deflation)
        masses, noise, solves = parameters.masses.model_dump(), parameters.noise, parameters.solves
        tolerance, vectors = solves.sloppy.tolerance, noise.vectors
        if suffix and solves.fine:
            tolerance, vectors = solves.fine.tolerance, solves.fine.vectors
        options: dict[str, Any] = {
            "noise": Noise(noise.seed, noise.kind, noise.dilution.options()),
            "solve": solve_to(tolerance, parameters),
            "current_links": parameters.current.links,
            "deflated_noise": parameters.estimator.low_modes,
        }

        def place(name: str) -> Place:
            over = {"noise": range(vectors), "probe": range(noise.probes)}
            chunk = {"noise": noise.chunk, "probe": noise.probe_chunk}
            return Place(f"{prefix}{name}{suffix}", over, chunk)

        if parameters.estimator.difference == "split_even":
            return self.workflow.add(
                split_even_loops, *inputs, place=place("loops_split_even"), masses=Masses(**masses), **options
            )
        loops = [
            self.workflow.add(current_loops, *inputs, place=place(f"loops_{name}"), mass=mass, **options)
            for name, mass in masses.items()
        ]
        return self.workflow.add(flavour_loops, *loops, place=Place(f"{prefix}flavours{suffix}"))

    def exact_loops(self) -> None:
        """Loops of each mass by a point source on every site and colour."""
        solves = self.parameters.solves
        for name, mass in self.parameters.masses.model_dump().items():
            self.workflow.add(
                exact_loops,
                self.operator,
                place=Place(f"exact_{name}"),
                mass=mass,
                solve=solve_to((solves.fine or solves.sloppy).tolerance, self.parameters),
                current_links=self.parameters.current.links,
            )


def solve_to(tolerance: float, parameters: G2Parameters) -> Solve:
    """Solves to a tolerance, in the form that stages take."""
    options = parameters.solves.model_dump(include={"solver", "precision", "max_iterations", "block"})
    return Solve(tolerance=tolerance, **options)

"""Connected vector correlators of HISQ quarks: from parameters to a workflow.

configuration -> observables
              -> operator (of each naik_epsilon) -> deflation_space -> deflation -> low_propagator
              -> meson_fields (of low_propagator, by rows) -> low_low of each quark
              -> random_wall_sources -> propagator of each quark -> walls (sloppy for all, fine for a few)
              -> correlator of each quark (low_low, walls) -> average

With `solver: auto` a first round measures solvers on the first configuration, see `workflows.shared.choice`;
with a target there are rounds, see `workflows.g2_connected.target`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline import Node, Place, Plan, Store
from stages.base.errors import InputError
from stages.connected.correlator import connected_average, connected_correlator
from stages.connected.low_modes import low_low, low_propagator, meson_fields
from stages.connected.walls import random_wall_sources, wall_correlators
from stages.ensemble.staggered_operator import given_operator, hisq_operator
from stages.lqcd.spectroscopy.connected import wall_columns
from stages.lqcd.spectroscopy.low_propagator import checked_ranks
from stages.lqcd.spectroscopy.meson_fields import REST
from stages.lqcd.spectroscopy.mesons import Momentum
from stages.mesons.propagator import staggered_propagator
from stages.mesons.solver_choice import PlannedSolves, staggered_choice
from workflows import (
    DeflationSection,
    StaggeredDefinition,
    Step,
    beside,
    deflation_economies,
    deflation_variants,
    variants,
)
from workflows.g2_connected.schema import ROWS, ConnectedParameters
from workflows.g2_connected.target import next_round

OPERATORS = {
    "local": "gamma_k x gamma_k",
    "one_link": "gamma_k x 1, thin links",
    "conserved": "half the current of M's hops",
    "pion": "gamma_5 x gamma_5",
}
"""Spin and taste of each current."""


class ConnectedWorkflow(StaggeredDefinition[ConnectedParameters]):
    """Connected vector correlators of HISQ quarks."""

    name = "g2_connected"
    title = "Connected vector correlators of HISQ quarks"
    report = "workflows.g2_connected.report"
    results = ("observables", "solver_choice", "spectrum", "low_low_*", "correlator_*", "average")
    schema = ConnectedParameters

    within: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Coordinates along `config` of what is measured; all of them, unless another workflow takes fewer."""

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        parameters, correlators = self.parameters, self.correlators()
        average = partial(
            connected_average,
            quarks=tuple(parameters.quarks),
            currents=parameters.currents,
            jackknife_bin=parameters.analysis.jackknife_bin,
        )
        self.workflow.add(average, *correlators, place=Place("average"))

    def correlators(self) -> list[Node]:
        """Add what leads to C(t) of each configuration; C(t) of each quark."""
        parameters = self.parameters
        operators, currents = parameters.operators, parameters.currents
        whole = partial(connected_correlator, operators=operators, currents=currents)
        correlators = []
        for quark in parameters.quarks:
            walls = [self.walls(quark, *each) for each in self.accuracies]
            exact: list[Node] = []
            if (section := parameters.deflation) and parameters.has_modes(quark):
                momenta = REST, *parameters.low_modes.moving
                exact = [self.low_low(quark, section, each) for each in momenta][:1]
            place = Place(f"correlator_{quark}")
            correlators.append(self.workflow.add(whole, walls[0], walls[-1], *exact, place=place))
        return correlators

    @property
    def accuracies(self) -> list[tuple[str, float, int]]:
        """End of the names of nodes, tolerance and number of walls: sloppy, and fine if there are any."""
        solves = self.parameters.solves
        fine = [("_fine", solves.fine.tolerance, solves.fine.walls)] if solves.fine else []
        return [("", solves.sloppy.tolerance, self.parameters.noise.walls), *fine]

    @property
    def operator(self) -> Node:
        """The operator of the first quark, which the eigenvectors are of."""
        return self.operator_of(next(iter(self.parameters.quarks)))

    def operator_of(self, quark: str) -> Node:
        """The operator of a quark; quarks of one naik_epsilon share it."""
        epsilon = self.parameters.quarks[quark].naik_epsilon
        if epsilon not in self.operators:
            solves, links = self.parameters.solves, self.parameters.links
            expected = replace(solves.expected, block=min(solves.block, self.chunk_columns))
            common: dict[str, Any] = {"boundary": links.boundary, "solves": expected}
            stage, files = partial(hisq_operator, naik_epsilon=epsilon, **common), {}
            if given := links.files:
                stage = partial(given_operator, phases=given.phases, **common)
                patterns = {"fat": given.fat, "long": given.long}
                files = {k: beside(self.ensemble, p, f"`links.files.{k}`") for k, p in patterns.items()}
            name = "operator" if not self.operators else f"operator_{quark}"
            place = Place(name, files=files)
            self.operators[epsilon] = self.workflow.add(stage, self.configuration, place=place)
        return self.operators[epsilon]

    @cached_property
    def operators(self) -> dict[float, Node]:
        """Those added, by naik_epsilon."""
        return {}

    @property
    def chunk_columns(self) -> int:
        """Right-hand sides of a chunk of walls."""
        return self.parameters.noise.chunk * wall_columns(self.parameters.operators)

    def sources(self, quark: str, name: str, walls: int) -> Node:
        """Random walls, for a quark's operator."""
        noise = self.parameters.noise
        stage = partial(random_wall_sources, operators=self.parameters.operators, seed=noise.seed)
        place = Place(name, {"source": range(walls), **self.within}, {"source": noise.chunk})
        return self.workflow.add(stage, self.operator_of(quark), place=place)

    def walls(self, quark: str, end: str, tolerance: float, walls: int) -> Node:
        """Correlators of a quark by so many walls."""
        parameters, solves = self.parameters, self.parameters.solves
        deflated = parameters.has_modes(quark)
        operator, sources = self.operator_of(quark), self.sources(quark, f"sources_{quark}{end}", walls)
        mass = parameters.quarks[quark].mass
        solve = partial(staggered_propagator, mass=mass, solve=solves.to(tolerance))
        place = Place(f"propagator_{quark}{end}", self.within)
        modes = self.modes if deflated else []
        solved = self.workflow.add(solve, operator, sources, *modes, place=place)
        stage = partial(
            wall_correlators,
            operators=parameters.operators,
            mass=mass,
            seed=parameters.noise.seed,
            block=min(solves.block, self.chunk_columns),
        )
        low = [self.low] if deflated and not end else []
        place = Place(f"walls_{quark}{end}", self.within)
        return self.workflow.add(stage, solved, sources, operator, *low, place=place)

    @cached_property
    def modes(self) -> list[Node]:
        """The deflation of solves, if the file has one."""
        node = self.deflation(self.parameters.deflation)
        return [node] if node else []

    @cached_property
    def low(self) -> Node:
        """The propagator of low modes."""
        return self.workflow.add(partial(low_propagator, ranks=self.ranks), *self.modes)

    @cached_property
    def ranks(self) -> tuple[int, ...] | None:
        """Those of the eigenvectors of `low`; None for all. Raises InputError."""
        section, path = self.parameters.deflation, self.parameters.low_modes.ranks
        if not section or path is None:
            return None
        try:
            numbers = [int(word) for word in Path(path).expanduser().read_text().split()]
            return tuple(checked_ranks(numbers, section.count(self.lattice)).tolist())
        except (OSError, ValueError, InputError) as error:
            text = f"{path} cannot be used ({error}): write ranks from 0 into it, below `deflation.vectors`"
            raise InputError(f"`low_modes.ranks`: {text}, with spaces or lines between them") from None

    def low_low(self, quark: str, section: DeflationSection, momentum: Momentum = REST) -> Node:
        """LL of a quark, of all sources, at a momentum, by meson fields of all modes, which quarks share."""
        operators = self.parameters.operators
        end = "_p" + "_".join(map(str, momentum)) if any(momentum) else ""
        if not (fields := self.workflow.nodes.get(f"meson_fields{end}")):
            stage = partial(meson_fields, operators=operators, momentum=momentum)
            rows = range(len(self.ranks) if self.ranks else section.count(self.lattice))
            place = Place(f"meson_fields{end}", {"row": rows, **self.within}, {"row": ROWS})
            fields = self.workflow.add(stage, self.low, place=place)
        traced = partial(low_low, operators=operators, mass=self.parameters.quarks[quark].mass)
        return self.workflow.add(traced, fields, place=Place(f"low_low_{quark}{end}"))

    def trials(self, parameters: ConnectedParameters) -> None:
        """The solvers on the first chunk of walls of one configuration, at the smallest mass."""
        solves, first = parameters.solves, next(iter(parameters.quarks))
        epsilon = parameters.quarks[first].naik_epsilon
        masses = [each.mass for each in parameters.quarks.values() if each.naik_epsilon == epsilon]
        sources = self.sources(first, "first_sources", parameters.noise.chunk)
        deflated = (1,) if parameters.deflation else (0,)
        right_hand_sides = parameters.noise.walls * wall_columns(parameters.operators)
        choice = partial(
            staggered_choice,
            candidates=solves.candidates(self.chunk_columns, deflated),
            solves=PlannedSolves(solves.sloppy.tolerance, right_hand_sides, solves.max_iterations),
            mass=min(masses),
        )
        modes = self.deflation_of_trials(parameters.deflation)
        place = Place("solver_choice", {"config": (self.project.trial_configuration,)})
        self.workflow.add(choice, self.operator, sources, *modes, place=place)

    def step(self, plan: Plan, store: Store) -> Step:
        """The next round towards a target."""
        return next_round(self.project, plan, store)

    def variants(self) -> Iterator[tuple[str, ConnectedParameters]]:
        """The other solver, other blocks, half and twice the walls, with and without eigenvectors."""
        parameters, walls = self.parameters, self.parameters.noise.walls
        yield from variants.each(parameters, "solves.solver", ("block_cgrq", "batched_cg"))
        yield from variants.each(parameters, "solves.block", (12, 24))
        yield from variants.each(parameters, "noise.walls", (walls // 2, 2 * walls, 4 * walls))
        yield from deflation_variants(parameters, parameters.deflation)

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller blocks and chunks, the other solver, lower precision, fewer eigenvectors or none."""
        chunks = {"noise.chunk": variants.divisors(self.parameters.noise.chunk)}
        solves = self.parameters.solves.economies(chunks)
        return {**solves, **deflation_economies(self.parameters.deflation, self.lattice)}

    def physics(self) -> dict[str, Any]:
        """Quarks, currents with their sign and normalisation, sources, and what is not included."""
        parameters, solves, noise = self.parameters, self.parameters.solves, self.parameters.noise
        quarks, fine, modes = parameters.quarks.items(), solves.fine, parameters.deflation
        accuracy = f"residuals at most {solves.sloppy.tolerance:g}"
        if fine:
            accuracy += f", and {fine.tolerance:g} for the first {fine.walls} walls, which correct it"
        used = modes and (f"{len(self.ranks)} of {modes.vectors}" if self.ranks else modes.vectors)
        whose = ", ".join(name for name in parameters.quarks if parameters.has_modes(name))
        return {
            "action": "hisq staggered quarks, M = 2 m + D as MILC defines it"
            + (", links of files" if parameters.links.files else ""),
            "masses": ", ".join(
                f"{name} {q.mass:g}, naik_epsilon = {q.naik_epsilon:g}" for name, q in quarks
            ),
            "boundary": f"{parameters.links.boundary} in time, periodic in space",
            "operator": ", ".join(f"{name} ({OPERATORS[name]})" for name in parameters.currents)
            + "; vectors are means over k = x, y, z",
            "definition": "C(t) = (1/T) sum_t0 Tr [P_t0+t O G P_t0 O G], G = M^-1, P projections; Tr over "
            "colour and space, both parities"
            + ("; at p: exp(-ipx) O, and its adjoint at t0" if parameters.low_modes.moving else ""),
            "normalisation": "slice trace: L^3 times the correlator of one point",
            "sign": "that of <O O^dag>, no minus sign; -<J J>_connected = sum of q^2 C over quarks",
            "sources": f"{noise.walls} random walls (Z4), seed {noise.seed}, on times drawn by configuration"
            + (f"; all sources for {used} low modes of {whose}" if modes else ""),
            "low_modes": f"{used} eigenvectors" if modes else "none",
            "solver": f"{solves.solver}, {solves.precision}, {accuracy}",
            "not_included": {
                "volume": "1 / L^3, which turns a slice trace into the correlator of one point",
                "charges": "q^2 of each quark",
                "renormalisation": "Z_V of local and one_link currents; that of conserved is 1",
                "disconnected": "the quark-line disconnected part, of the workflow g2_disconnected",
            },
        }


WORKFLOW = ConnectedWorkflow

"""Pions and rhos of HISQ quarks: from parameters to a workflow.

configuration -> observables
              -> operator, sources (-> smeared_links, where operators have links) -> propagator
              -> mesons -> average
              -> operator (-> deflation_space -> deflation, which propagator takes) -> solver_choice

With `solver: auto` a first round measures solvers on the first configuration, see `workflows.shared.choice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pipeline import Node, Place
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.staggered_operator import hisq_operator
from stages.lqcd.spectroscopy.little_group import channels_at, operators_in, undivided
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SPIN_TASTES
from stages.mesons.costs import staggered_columns
from stages.mesons.propagator import staggered_propagator
from stages.mesons.solver_choice import PlannedSolves, staggered_choice
from stages.mesons.sources import staggered_sources
from stages.mesons.two_point import staggered_average, staggered_two_point
from workflows import (
    StaggeredDefinition,
    deflation_economies,
    deflation_variants,
    first_chunk,
    variants,
)
from workflows.hisq_mesons.schema import HisqMesonParameters

THIN = partial(smeared_links, kind="stout", steps=0, rho=0.0)
"""Smearing that leaves the configuration's links, made unitary, as they are."""

DEFINITIONS = {
    "point": "C(p, t) = Tr [exp(-i p (x - x0)) P_t0+t O G O^dag P_x0 G], x0 the one point of the source, "
    "p = 2 pi n / L",
    "corner_wall": "C(t) = sum_a b_a^dag G P_t0+t O G O^dag b_a, b_a is 1 at colour a on all sites of "
    "even x, y, z of the slice t0, else 0: a coherent sum over pairs of corners, without a volume factor",
    "random_wall": "C(t) = Tr [P_t0+t O G O^dag P_t0 G] / V, V sites in the slice t0: the mean over its "
    "points, estimated with noise",
}
"""What is measured with sources of each kind."""


class HisqMesonsWorkflow(StaggeredDefinition[HisqMesonParameters]):
    """Pions and rhos of HISQ quarks."""

    name = "hisq_mesons"
    title = "Pions and rhos of HISQ quarks"
    report = "workflows.hisq_mesons.report"
    results = ("observables", "solver_choice", "spectrum", "mesons", "average")
    schema = HisqMesonParameters

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        mesons, momenta = self.parameters.mesons, self.parameters.mesons.momenta
        families = {name: [(label,) for label in MULTIPLETS[name]] for name in mesons.operators}
        channels = channels_at(families, momenta, self.lattice.extents, SPIN_TASTES)
        labels = tuple(dict.fromkeys([*mesons.labels, *operators_in(channels)]))
        two_point = partial(
            staggered_two_point, extents=self.lattice.extents, operators=labels, momenta=momenta
        )
        solved = self.propagators()
        correlators = self.workflow.add(two_point, solved, *self.links, place=Place("mesons"))
        average = partial(
            staggered_average,
            operators=labels,
            channels=mesons.operators if undivided(channels, families, momenta) else channels,
            momenta=momenta,
            jackknife_bin=self.parameters.analysis.jackknife_bin,
        )
        self.workflow.add(average, correlators, place=Place("average"))

    @cached_property
    def operator(self) -> Node:
        """The HISQ operator of each configuration."""
        quark, solves, section = self.parameters.quark, self.parameters.solves, self.parameters.sources
        columns = section.chunk * staggered_columns(section.places()[0], self.parameters.mesons.labels)
        stage = partial(
            hisq_operator,
            boundary=quark.boundary,
            naik_epsilon=quark.naik_epsilon,
            solves=replace(solves.expected, block=min(solves.block, columns)),
        )
        return self.workflow.add(stage, self.configuration, place=Place("operator"))

    @cached_property
    def links(self) -> list[Node]:
        """Links of operators, where one is displaced."""
        mesons = self.parameters.mesons
        if not mesons.displaced:
            return []
        return [self.workflow.add(mesons.links.stage if mesons.links else THIN, self.configuration)]

    def propagators(self) -> Node:
        """Solutions for all sources and operators."""
        sources, deflation = self._sources("sources", self.sources), self.deflation(self.parameters.deflation)
        solves = self.parameters.solves
        solve = solves.to(solves.tolerance)
        stage = partial(staggered_propagator, mass=self.parameters.quark.mass, solve=solve)
        modes = [deflation] if deflation else []
        return self.workflow.add(stage, self.operator, sources, *modes, place=Place("propagator"))

    @cached_property
    def sources(self) -> list[str]:
        """Names of all sources of a configuration."""
        return [place.label for place in self.parameters.sources.places()]

    def _sources(self, name: str, labels: Sequence[str]) -> Node:
        section = self.parameters.sources
        stage = partial(
            staggered_sources,
            operators=self.parameters.mesons.labels,
            seed=section.noise.seed if section.noise else None,
        )
        place = Place(name, {"source": labels}, {"source": section.chunk})
        return self.workflow.add(stage, self.configuration, *self.links, place=place)

    def trials(self, parameters: HisqMesonParameters) -> None:
        """The solvers on the first chunk of sources of one configuration, with its low modes."""
        chunk, solves = parameters.sources.chunk, parameters.solves
        sources = self._sources("first_sources", first_chunk(self.sources, chunk))
        each = staggered_columns(parameters.sources.places()[0], parameters.mesons.labels)
        deflated = (0, *parameters.deflation.tried_parts) if parameters.deflation else (0,)
        columns = each * sources.chunk["source"]
        choice = partial(
            staggered_choice,
            candidates=solves.candidates(columns, deflated),
            solves=PlannedSolves(solves.tolerance, each * len(self.sources), solves.max_iterations),
            mass=parameters.quark.mass,
        )
        modes = self.deflation_of_trials(parameters.deflation)
        place = Place("solver_choice", {"config": (self.project.trial_configuration,)})
        self.workflow.add(choice, self.operator, sources, *modes, place=place)

    def variants(self) -> Iterator[tuple[str, HisqMesonParameters]]:
        """Other solvers, and other blocks, with and without deflation."""
        parameters = self.parameters
        yield from variants.each(parameters, "solves.solver", ("block_cgrq", "batched_cg"))
        yield from variants.each(parameters, "solves.block", (4, 12))
        yield from deflation_variants(parameters, parameters.deflation)

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller blocks and chunks, the other solver, lower precision, fewer eigenvectors or none."""
        chunks = {"sources.chunk": variants.less(self.parameters.sources.chunk)}
        solves = self.parameters.solves.economies(chunks)
        return {**solves, **deflation_economies(self.parameters.deflation, self.lattice)}

    def physics(self) -> dict[str, Any]:
        """The quark, its sources, and the operators with their sign and normalisation."""
        parameters = self.parameters
        quark, solves, mesons = parameters.quark, parameters.solves, parameters.mesons
        options: dict[str, Any] = {"mode": "json", "exclude_none": True}
        modes = parameters.deflation
        return {
            "action": f"hisq staggered quarks, naik_epsilon = {quark.naik_epsilon}, M = 2 m + D as MILC "
            "defines it",
            "masses": f"m = {quark.mass:g} of M = 2 m + D",
            "boundary": f"{quark.boundary} in time, periodic in space",
            "operator": "O of spin and taste, the same at source and sink, GX-G1 for gamma_x and the taste "
            "singlet; MILC's phases",
            "operator_links": mesons.links.model_dump(**options) if mesons.links else "the configuration's",
            "sources": parameters.sources.model_dump(**options, exclude={"chunk"}),
            "low_modes": f"{modes.vectors} eigenvectors" if modes else "none",
            "definition": f"{DEFINITIONS[parameters.sources.kind]}; Tr over colour and space, G = M^-1, P "
            "projections; mean over sources",
            "sign": "that of <O O^dag>: the state that an operator is named after is positive, its partner "
            "of other parity has -(-1)^t; t counts from the source",
            "solver": f"{solves.solver}, {solves.precision}, residuals at most {solves.tolerance:g} of the "
            "even sites' system",
            "not_included": {
                "normalisation": "none: MILC's correlators are the same numbers. With 2 G, the propagator of "
                "m + D / 2, C is 4 times as large; a factor 1/4 for tastes cancels that",
                "renormalisation": "of the operators: Z factors",
                "disconnected": "quark-line disconnected parts, which flavour-non-singlet mesons do not have",
            },
        }


WORKFLOW = HisqMesonsWorkflow

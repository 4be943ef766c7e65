"""Mesons by distillation: from parameters to a workflow.

configuration -> observables
              -> smeared_links -> laplace_eigenvectors (-> basis) -> elementals
              -> operator; operator, basis, columns -> perambulator or sink_projection
elementals, perambulator or sink_projection -> mesons -> average, levels
operator, basis, columns -> current_insertion, where a file asks for it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from pipeline import Node, Place
from stages.distillation.costs import columns_of
from stages.distillation.current_insertion import current_insertion
from stages.distillation.distilled_two_point import ElementalAxes, distilled_mesons, stochastic_mesons
from stages.distillation.laph_average import laph_average, laph_levels
from stages.distillation.laplace_eigenvectors import laplace_basis
from stages.distillation.operator_elementals import elementals
from stages.distillation.perambulator import first_sources, full_columns, perambulator, sink_projection
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.trial import WIDEST
from stages.lqcd.spectroscopy.little_group import Channels, channels_at, operators_in, undivided
from stages.lqcd.spectroscopy.operators import BILINEARS
from stages.mesons.two_point import dirac_channels
from workflows import QuarkDefinition, first_chunk, variants
from workflows.laph_mesons.schema import InsertionSection, LaphParameters


class LaphWorkflow(QuarkDefinition[LaphParameters]):
    """Mesons in the space of the lowest Laplace eigenvectors."""

    name = "laph_mesons"
    title = "Mesons by distillation: perambulators in the space of the lowest Laplace eigenvectors"
    report = "workflows.laph_mesons.report"
    results = (
        "observables",
        "solver_choice",
        "laplace_eigenvectors",
        "elementals",
        "current_insertion",
        "mesons",
        "average",
        "levels",
        *(f"neutral_{name}" for name in ("mesons", "average", "levels")),
    )
    schema = LaphParameters

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        fields = self.elementals()
        solved = self.solves()
        if self.parameters.insertions:
            self.insertions(self.parameters.insertions)
        self.averages(self.mesons(fields, solved))
        if "neutral" in self.parameters.operators.flavours:
            systems = [*self._systems[:3], *self.other_hierarchy]
            stage = partial(perambulator, solve=self.solve, other_flavour=True)
            other = self.workflow.add(stage, *systems, place=Place("other_perambulator"))
            self.averages(self.mesons(fields, solved, other, prefix="neutral_"), prefix="neutral_")

    @cached_property
    def links(self) -> Node:
        """Links of the Laplacian and of displacements."""
        return self.workflow.add(self.parameters.smearing.stage, self.configuration)

    @cached_property
    def basis(self) -> Node:
        """Eigenvectors in the store, by chunks of slices, and all of a configuration where they are used."""
        section, times = self.parameters.distillation, self.lattice.time_extent
        place = Place(over={"time": range(times)}, chunk={"time": section.slices or times})
        eigenvectors = self.workflow.add(section.eigenvectors, self.links, place=place)
        return self.workflow.add(
            partial(laplace_basis, time_extent=times), eigenvectors, place=Place("basis")
        )

    def elementals(self) -> Node:
        """Elementals of all momenta and displacements."""
        operators = self.parameters.operators
        momenta, displacements = operators.elemental_momenta, operators.displacements
        stage = partial(elementals, momenta=momenta, displacements=displacements)
        return self.workflow.add(stage, self.links, self.basis)

    @cached_property
    def labels(self) -> list[str]:
        """Names of all sources of a configuration."""
        noise = self.parameters.noise
        marks = [""] if noise is None else [f"n{number}" for number in range(noise.vectors)]
        return [f"t{time}{mark}" for time in self.parameters.sources.times for mark in marks]

    @cached_property
    def columns(self) -> Node:
        """Columns that are sources: eigenvectors, or diluted noise."""
        return self._columns("columns", self.configuration, self.labels)

    def _columns(self, name: str, like: Node, labels: Sequence[str]) -> Node:
        """Columns of some sources; `like` has their configurations."""
        noise = self.parameters.noise
        over = {"config": like.over["config"], "source": labels}
        place = Place(name, over, {"source": self.parameters.sources.chunk})
        times, vectors = self.lattice.time_extent, self.parameters.distillation.vectors
        if noise is None:
            stage = partial(full_columns, time_extent=times, eigenvectors=vectors)
            return self.workflow.add(stage, place=place)
        return self.workflow.add(noise.columns(times, vectors), place=place)

    def first_sources(self) -> Node:
        """The first block of the first chunk of sources, as wide as any."""
        first = first_chunk(self.labels, self.parameters.sources.chunk)
        columns = self._columns("first_columns", self.operator, first)
        block = min(WIDEST, columns_of(columns))
        stage = partial(first_sources, block=block)
        return self.workflow.add(stage, self.operator, self.basis, columns)

    def chunk_columns(self, first: Node) -> int:
        """Right-hand sides of a chunk."""
        return columns_of(first.inputs[2])

    def planned_columns(self, first: Node) -> int:
        """Right-hand sides of a configuration; currents' sources on slices of sinks count twice."""
        insertions = self.parameters.insertions
        each = columns_of(first.inputs[2]) // self.parameters.sources.chunk
        lines = 1 + len(insertions.separations) if insertions else 0
        return len(self.labels) * each * (1 + lines + ("neutral" in self.parameters.operators.flavours))

    def solves(self) -> Node:
        """Perambulators of all source times, or projections of all noise."""
        solve = self.solve
        noisy, exact = partial(sink_projection, solve=solve), partial(perambulator, solve=solve)
        return self.workflow.add(noisy if self.parameters.noise else exact, *self._systems)

    def insertions(self, section: InsertionSection) -> Node:
        """Generalised perambulators from the sources and systems of the perambulators."""
        stage = partial(current_insertion, currents=section.currents, solve=self.solve)
        return self.workflow.add(stage, *self._systems)

    @property
    def solve(self) -> Solve:
        """The solves of perambulators and currents."""
        return self.parameters.solves.to(self.parameters.solves.tolerance)

    @property
    def _systems(self) -> list[Node]:
        """Nodes that solve."""
        return [self.operator, self.basis, self.columns, *self.hierarchy]

    def mesons(self, fields: Node, solved: Node, *other: Node, prefix: str = "") -> Node:
        """Two-point functions: of each source, or of all pairs of noise vectors of a configuration."""
        operators = self.parameters.operators
        gammas, _ = dirac_channels(operators.momenta, self.lattice.extents)
        columns = [self.columns] if self.parameters.noise else []
        stage = partial(
            stochastic_mesons if columns else distilled_mesons,
            axes=ElementalAxes(self.lattice.extents, operators.displacements),
            momenta=operators.momenta,
            operators=self.operators,
            gammas=gammas,
        )
        return self.workflow.add(stage, solved, *columns, fields, *other, place=Place(f"{prefix}mesons"))

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators that are measured."""
        asked = self.parameters.operators.operators
        return tuple(dict.fromkeys([*asked, *operators_in(self.channels)]))

    @cached_property
    def channels(self) -> Channels:
        """The bases' channels at all momenta."""
        operators = self.parameters.operators
        return channels_at(operators.families, operators.momenta, self.lattice.extents, BILINEARS)

    def averages(self, mesons: Node, prefix: str = "") -> None:
        """Correlators and effective masses of the ensemble, and the levels of all bases."""
        operators, width = self.parameters.operators, self.parameters.analysis.jackknife_bin
        gammas, channels = dirac_channels(operators.momenta, self.lattice.extents)
        average = partial(
            laph_average,
            momenta=operators.momenta,
            jackknife_bin=width,
            gammas=gammas,
            channels=channels,
        )
        self.workflow.add(average, mesons, place=Place(f"{prefix}average"))
        whole = undivided(self.channels, operators.families, operators.momenta)
        rows = {name: next(filter(None, members)) for name, members in self.channels.items()}
        levels = partial(
            laph_levels,
            momenta=operators.momenta,
            operators=self.operators,
            bases=operators.bases if whole else self.channels,
            t0=operators.t0,
            jackknife_bin=width,
            level_names=[f"{name} {n}" for name, ((texts, _), *_) in rows.items() for n in range(len(texts))],
        )
        self.workflow.add(levels, mesons, place=Place(f"{prefix}levels"))

    def variants(self) -> Iterator[tuple[str, LaphParameters]]:
        """Other solvers, and other numbers of eigenvectors."""
        yield from variants.each(self.parameters, "solves.solver", ("bicgstab", "multigrid"))
        vectors = self.parameters.distillation.vectors
        yield from variants.each(self.parameters, "distillation.vectors", (vectors // 2, 2 * vectors))

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Fewer slices at a time, what solves may do with less, and fewer eigenvectors, in single."""
        section = self.parameters.distillation
        slices = variants.divisors(section.slices or self.lattice.time_extent)
        return {
            "distillation.slices": [number for number in slices if number % 2 == 0],
            **super().economies(),
            "distillation.precision": ("single",) if section.precision == "double" else (),
            "distillation.vectors": variants.less(section.vectors),
        }

    def physics(self) -> dict[str, Any]:
        """The quark, the smearing of its field, and the operators with their sign."""
        options: dict[str, Any] = {"mode": "json", "exclude_none": True}
        parameters, noise = self.parameters, self.parameters.noise
        return {
            **super().physics(),
            "operator": "psibar G psi of quark fields in the space of the lowest Laplace eigenvectors of "
            "each time slice; Dirac matrices G in the DeGrand-Rossi basis",
            "smearing": parameters.smearing.model_dump(**options),
            "distillation": parameters.distillation.model_dump(**options, exclude={"block", "slices"}),
            "noise": noise.model_dump(**options) if noise else "none: exact distillation",
            "sources": parameters.sources.model_dump(**options, exclude={"chunk"}),
            "definition": "C_G(p, t) = <O_G(p, t0 + t) O_G(p, t0)^dag>, O_G(p, t) = sum_x exp(-i p x) "
            "psibar_2 G psi_1 over the slice t, also at the source, without a volume factor; p = 2 pi n / L; "
            f"mean over sources{' and pairs of different noise vectors' if noise else ''}",
            "sign": "that of <O O^dag>: the pion's is positive; t counts from the source",
        }


WORKFLOW = LaphWorkflow

"""Mesons by distillation: from parameters to a workflow.

configuration -> observables
              -> smeared_links -> laplace_eigenvectors (-> basis) -> elementals
              -> operator; operator, basis, columns -> perambulator or sink_projection
elementals, perambulator or sink_projection -> mesons -> average, levels
operator, basis, columns -> current_insertion, where a file asks for it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from pipeline import Node
from pipeline.declare.coordinates import sorted_unique
from stages.distillation.current_insertion import Currents, current_insertion
from stages.distillation.distilled_two_point import distilled_mesons, stochastic_mesons
from stages.distillation.first_sources import first_sources
from stages.distillation.laph_average import laph_average, laph_levels
from stages.distillation.laplace_eigenvectors import laplace_basis, laplace_eigenvectors
from stages.distillation.operator_elementals import elementals
from stages.distillation.perambulator import perambulator, sink_projection
from stages.distillation.source_columns import full_columns, stochastic_columns
from stages.ensemble.smeared_links import smeared_links
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.solvers.named import Solve
from workflows.laph_mesons import footprint as laph_footprint
from workflows.laph_mesons.schema import InsertionSection, LaphParameters
from workflows.shared import footprint, quark_footprint
from workflows.shared.definition import Campaign
from workflows.shared.quark_nodes import CHOICE, QuarkDefinition, QuarkNodes


class LaphNodes(QuarkNodes[LaphParameters]):
    """The nodes of the workflow `laph_mesons`."""

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        fields = self.elementals()
        solved = self.solves()
        if self.parameters.insertions:
            self.insertions(self.parameters.insertions)
        self.averages(self.mesons(fields, solved))

    @cached_property
    def links(self) -> Node:
        """Those of the Laplacian and of displacements."""
        return self.add(
            smeared_links,
            self.configuration,
            device_memory=footprint.links_bytes(self.lattice),
            **self.parameters.smearing.model_dump(),
        )

    @cached_property
    def basis(self) -> Node:
        """Eigenvectors in the store, by chunks of slices, and all of a configuration where they are used."""
        section, lattice = self.parameters.distillation, self.lattice
        slices = section.slices or lattice.time_extent
        sizes = (section.vectors, section.block, section.precision)
        eigenvectors = self.add(
            laplace_eigenvectors,
            self.links,
            over={"time": range(lattice.time_extent)},
            chunk={"time": slices},
            memory=laph_footprint.eigensolve_memory(lattice, slices, *sizes),
            device_memory=laph_footprint.eigensolve_device_memory(lattice, slices, *sizes),
            stored=laph_footprint.vectors_bytes(lattice, slices, section.vectors, section.precision),
            **section.model_dump(exclude={"slices"}),
        )
        return self.add(
            laplace_basis,
            eigenvectors,
            name="basis",
            device_memory=laph_footprint.vectors_bytes(
                lattice, lattice.time_extent, section.vectors, section.precision
            ),
            time_extent=lattice.time_extent,
        )

    def elementals(self) -> Node:
        """Of all momenta and displacements."""
        section, operators, lattice = self.parameters.distillation, self.parameters.operators, self.lattice
        counts = (len(operators.momenta), len(operators.displacements), section.vectors)
        work = laph_footprint.elementals_device_memory(lattice, section.vectors, section.precision)
        stored = laph_footprint.elementals_bytes(lattice, *counts)
        held = footprint.links_bytes(lattice) * footprint.LINK_FIELDS + 2 * work + stored
        return self.add(
            elementals,
            self.links,
            self.basis,
            memory=footprint.PROCESS + held,
            device_memory=work,
            stored=stored,
            momenta=operators.elemental_momenta,
            displacements=operators.displacements,
        )

    @cached_property
    def labels(self) -> list[str]:
        """Names of all sources of a configuration."""
        noise = self.parameters.noise
        marks = [""] if noise is None else [f"n{number}" for number in range(noise.vectors)]
        return [f"t{time}{mark}" for time in self.parameters.sources.times for mark in marks]

    @cached_property
    def columns(self) -> Node:
        """Which sources there are: eigenvectors, or diluted noise."""
        return self._columns("columns", self.configuration, self.labels)

    def _columns(self, name: str, like: Node, labels: Sequence[str]) -> Node:
        """Those of some sources; `like` has their configurations."""
        noise, section = self.parameters.noise, self.parameters.sources
        common: dict[str, Any] = {
            "name": name,
            "over": {"config": like.over["config"], "source": labels},
            "chunk": {"source": section.chunk},
            "time_extent": self.lattice.time_extent,
            "eigenvectors": self.parameters.distillation.vectors,
        }
        if noise is None:
            return self.add(full_columns, **common)
        options = noise.model_dump(include={"kind", "seed", "dilution"})
        return self.add(stochastic_columns, **common, **options)

    def first_sources(self) -> Node:
        """The first block of the first chunk of sources."""
        ordered = [str(label) for label in sorted_unique("source", self.labels)]
        first = ordered[: self.parameters.sources.chunk]
        columns = self._columns("first_columns", self.operator, first)
        block = self.parameters.solves.block
        return self.add(first_sources, self.operator, self.basis, columns, block=block)

    def planned_columns(self) -> int:
        """Right-hand sides of a configuration; currents' sources on slices of sinks count twice."""
        parameters = self.parameters
        each = parameters.columns(self.lattice) // parameters.sources.chunk
        lines = 1 + len(parameters.insertions.separations) if parameters.insertions else 0
        return len(self.labels) * each * (1 + lines)

    def solves(self) -> Node:
        """Perambulators of all source times, or projections of all noise."""
        parameters, section = self.parameters, self.parameters.distillation
        upstream = [self.operator, self.basis, self.columns, *self.hierarchy]
        rhs = parameters.columns(self.lattice)
        return self.add(
            sink_projection if parameters.noise else perambulator,
            *upstream,
            **self.solving(parameters),
            stored=laph_footprint.projections_bytes(self.lattice, section.vectors, rhs),
            solve=Solve(**parameters.solves.model_dump()),
        )

    def solving(self, parameters: LaphParameters) -> dict[str, Any]:
        """Bytes of a task that solves."""
        section, solves, rhs = parameters.distillation, parameters.solves, parameters.columns(self.lattice)
        sizes = (self.lattice, section.vectors, min(solves.block, rhs), solves.solver)
        return {
            "memory": laph_footprint.solving_memory(*sizes, rhs, solves.precision, section.precision),
            "device_memory": laph_footprint.solving_device_memory(*sizes),
        }

    def insertions(self, section: InsertionSection) -> Node:
        """Generalised perambulators from the sources and systems of the perambulators."""
        parameters, lattice = self.parameters, self.lattice
        solves, distillation, sources = parameters.solves, parameters.distillation, parameters.sources.chunk
        counts = [len(values) for _, values in section]
        momenta, k = len(section.momenta), distillation.vectors
        method = (min(solves.block, SPINS * k), solves.solver)
        sizes = (k, *method, sources, momenta, solves.precision, distillation.precision)
        stored = laph_footprint.insertions_bytes(lattice, k, sources, *counts)
        return self.add(
            current_insertion,
            self.operator,
            self.basis,
            self.columns,
            *self.hierarchy,
            memory=laph_footprint.inserting_memory(lattice, *sizes) + stored,
            device_memory=laph_footprint.inserting_device_memory(lattice, *method, momenta),
            stored=stored,
            currents=Currents(**section.model_dump()),
            solve=Solve(**solves.model_dump()),
        )

    def mesons(self, fields: Node, solved: Node) -> Node:
        """Two-point functions: of each source, or of all pairs of noise vectors of a configuration."""
        parameters, operators = self.parameters, self.parameters.operators
        counts = (len(operators.momenta), len(operators.operators), len(operators.displacements))
        sources, k = parameters.sources.chunk, parameters.distillation.vectors
        if noise := parameters.noise:
            sources = len(parameters.sources.times) * noise.vectors * (noise.vectors - 1) // 2
        columns = parameters.columns(self.lattice)
        work = laph_footprint.contraction_memory(self.lattice, k, columns, *counts)
        common: dict[str, Any] = {
            "name": "mesons",
            "memory": footprint.PROCESS + work,
            "device_memory": work,
            "stored": laph_footprint.correlators_bytes(self.lattice, sources, *counts[:2]),
            "extents": self.lattice.extents,
            "displacements": operators.displacements,
            "momenta": operators.momenta,
            "operators": operators.operators,
        }
        if parameters.noise:
            return self.add(stochastic_mesons, solved, self.columns, fields, **common)
        return self.add(distilled_mesons, solved, fields, **common)

    def averages(self, mesons: Node) -> None:
        """Correlators and effective masses of the ensemble, and the levels of all bases."""
        operators, width = self.parameters.operators, self.parameters.analysis.jackknife_bin
        momenta, lattice = len(operators.momenta), self.lattice
        samples = len(self.ensemble.labels) // width
        self.add(
            laph_average,
            mesons,
            name="average",
            stored=quark_footprint.meson_average_bytes(lattice, samples, momenta),
            momenta=operators.momenta,
            jackknife_bin=width,
        )
        self.add(
            laph_levels,
            mesons,
            name="levels",
            stored=32 * momenta * lattice.time_extent * len(operators.operators) + footprint.RECORD,
            momenta=operators.momenta,
            operators=operators.operators,
            bases=operators.bases,
            t0=operators.t0,
            jackknife_bin=width,
        )


class LaphWorkflow(QuarkDefinition[LaphParameters]):
    """Mesons in the space of the lowest Laplace eigenvectors."""

    name = "laph_mesons"
    title = "Mesons by distillation: perambulators in the space of the lowest Laplace eigenvectors"
    report = "workflows.laph_mesons.report"
    results = (
        "observables",
        CHOICE,
        "laplace_eigenvectors",
        "elementals",
        "current_insertion",
        "mesons",
        "average",
        "levels",
    )
    schema = LaphParameters
    nodes = LaphNodes

    def rehearse(self, campaign: Campaign[LaphParameters], xp: ModuleType) -> Iterator[tuple[int, int]]:
        """The Laplacian in the widths of the eigensolver, then solves."""
        from workflows.laph_mesons.rehearsal import rehearse

        return rehearse(campaign.parameters, campaign.lattice, xp)


WORKFLOW = LaphWorkflow()

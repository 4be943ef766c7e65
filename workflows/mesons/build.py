"""Wilson-clover propagators and meson two-point functions: from parameters to a workflow.

configuration -> observables
              -> operator, sources -> propagator (-> kept_propagator) -> mesons -> average
                                   -> solver_choice
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from pipeline import Node, Workflow
from pipeline.declare.coordinates import sorted_unique
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.quark_sources import source_columns
from stages.mesons.propagator import kept_propagator, propagator
from stages.mesons.sources import (
    file_sources,
    point_sources,
    smeared_sources,
    wall_sources,
    z2_wall_sources,
)
from stages.mesons.two_point import meson_average, meson_two_point
from workflows.mesons.schema import MesonParameters
from workflows.mesons.sources import source_files
from workflows.shared import quark_footprint
from workflows.shared.definition import Campaign
from workflows.shared.quark_nodes import CHOICE, QuarkDefinition, QuarkNodes

SOURCES: dict[str, Callable[..., Any]] = {
    "point": point_sources,
    "smeared": smeared_sources,
    "wall": wall_sources,
    "z2_wall": z2_wall_sources,
    "file": file_sources,
}
"""Stage of each kind."""


class MesonNodes(QuarkNodes[MesonParameters]):
    """The nodes of the workflow `mesons`."""

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        self.averages(self.mesons(self.propagators()))

    @cached_property
    def sources(self) -> Node:
        """All sources of a configuration."""
        return self._sources("sources", self.labels)

    def first_sources(self) -> Node:
        """The sources of the first chunk."""
        ordered = [str(label) for label in sorted_unique("source", self.labels)]
        return self._sources("first_sources", ordered[: self.parameters.sources.chunk])

    @cached_property
    def labels(self) -> list[str]:
        """Names of all sources."""
        section = self.parameters.sources
        return list(self.files) if section.files else [place.label for place in section.places()]

    @cached_property
    def files(self) -> dict[str, Any]:
        """Those of sources in files, by name."""
        pattern = self.parameters.sources.files
        return source_files(pattern) if pattern else {}

    def _sources(self, name: str, labels: Sequence[str]) -> Node:
        section = self.parameters.sources
        options: dict[str, Any] = section.smearing.model_dump() if section.smearing else {}
        if section.noise:
            options["seed"] = section.noise.seed
        if self.files:
            options["files"] = {"path": self.files}
        return self.add(
            SOURCES[section.kind],
            self.configuration,
            name=name,
            over={"source": labels},
            chunk={"source": section.chunk},
            **options,
        )

    def propagators(self) -> Node:
        """What mesons are made of: propagators in memory, or those that are kept."""
        solve = Solve(**self.parameters.solves.model_dump())
        solved = self.add(propagator, self.operator, self.sources, *self.hierarchy, solve=solve)
        if not self.parameters.keep_propagators:
            return solved
        stored = quark_footprint.propagator_bytes(self.lattice, self.columns * self.parameters.sources.chunk)
        return self.add(kept_propagator, solved, **self.solving(self.parameters), stored=stored)

    def mesons(self, solved: Node) -> Node:
        """Two-point functions of each source."""
        momenta, chunk = self.parameters.mesons.momenta, self.parameters.sources.chunk
        return self.add(
            meson_two_point,
            solved,
            name="mesons",
            **self.solving(self.parameters),
            stored=quark_footprint.correlators_bytes(self.lattice, chunk, len(momenta)),
            extents=self.lattice.extents,
            momenta=momenta,
        )

    def averages(self, mesons: Node) -> None:
        """Correlators and effective masses of the ensemble."""
        momenta, width = self.parameters.mesons.momenta, self.parameters.analysis.jackknife_bin
        samples = len(self.ensemble.labels) // width
        self.add(
            meson_average,
            mesons,
            name="average",
            stored=quark_footprint.meson_average_bytes(self.lattice, samples, len(momenta)),
            momenta=momenta,
            jackknife_bin=width,
        )

    def planned_columns(self) -> int:
        """Right-hand sides of a configuration."""
        return len(self.labels) * self.columns

    @property
    def columns(self) -> int:
        """Right-hand sides of a source."""
        paths = list(self.files.values())
        return source_columns(paths[0]) if paths else self.parameters.sources.columns

    def solving(self, parameters: MesonParameters) -> dict[str, Any]:
        """Bytes of a task that solves."""
        solves, columns = parameters.solves, self.columns * parameters.sources.chunk
        of = (columns, solves.block, solves.solver)
        return {
            "memory": quark_footprint.propagating_memory(self.lattice, solves.precision, *of),
            "device_memory": quark_footprint.propagating_device_memory(self.lattice, *of),
        }


class MesonsWorkflow(QuarkDefinition[MesonParameters]):
    """Meson two-point functions from propagators."""

    name = "mesons"
    title = "Wilson-clover propagators and meson two-point functions"
    report = "workflows.mesons.report"
    results = ("observables", CHOICE, "mesons", "average", "kept_propagator")
    schema = MesonParameters
    nodes = MesonNodes

    def rehearse(self, campaign: Campaign[MesonParameters], xp: ModuleType) -> Iterator[tuple[int, int]]:
        """Solves in every block width."""
        from workflows.shared.quark_rehearsal import solve_all, widths

        parameters, nodes = campaign.parameters, MesonNodes(Workflow(self.name), campaign)
        blocks = widths(nodes.columns * parameters.sources.chunk, parameters.solves.block)
        return solve_all(parameters, blocks, campaign.lattice, xp)


WORKFLOW = MesonsWorkflow()

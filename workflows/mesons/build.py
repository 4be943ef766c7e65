"""Wilson-clover propagators and meson two-point functions: from parameters to a workflow.

configuration -> observables
              -> operator, sources -> propagator (-> kept_propagator) -> mesons -> average
              (-> smeared_links -> sources)
                                   -> solver_choice
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pipeline import Node, Place
from stages.mesons.costs import columns_of
from stages.mesons.propagator import kept_propagator, propagator
from stages.mesons.two_point import dirac_channels, meson_average, meson_two_point
from workflows import QuarkDefinition, first_chunk, variants
from workflows.mesons.schema import MesonParameters
from workflows.mesons.sources import source_files

NEUTRAL = ("neutral_mesons", "neutral_average", "other_kept_propagator")
"""Results of neutral mesons of a twisted doublet."""

DEFINITIONS = {
    "point": "C_G(p, t) = sum_x exp(-i p (x - x0)) <O_G(x, t0 + t) O_G(x0, t0)^dag>",
    "smeared": "C_G(p, t) = sum_x exp(-i p (x - x0)) <O_G(x, t0 + t) O'_G(x0, t0)^dag>, O' of smeared quark "
    "fields",
    "wall": "C_G(t) = sum_x <O_G(x, t0 + t) W_G(t0)^dag>, W_G = sum_y,z psibar_2(y) G psi_1(z) over all "
    "sites y and z of the slice, with equal colours and without gauge links",
    "z2_wall": "C_G(t) = (1 / V) sum_x,y <O_G(x, t0 + t) O_G(y, t0)^dag>, V sites in the slice: the mean "
    "over its points y, estimated with noise",
    "file": "C_G(p, t) = - sum_x exp(-i p x) tr [G S(x) gamma_t G^dag gamma_t gamma_5 S(x)^dag gamma_5], S "
    "the solutions of the file's columns, x from the origin, t0 the first slice that is not zero",
}
"""What is measured with sources of each kind."""


class MesonsWorkflow(QuarkDefinition[MesonParameters]):
    """Meson two-point functions from propagators."""

    name = "mesons"
    title = "Wilson-clover propagators and meson two-point functions"
    report = "workflows.mesons.report"
    results = ("observables", "solver_choice", "mesons", "average", "kept_propagator", *NEUTRAL)
    schema = MesonParameters

    def build(self) -> None:
        """Add all nodes of the campaign."""
        self.observables()
        quarks = self.propagators()
        self.averages("average", self.mesons("mesons", quarks))
        if "neutral" in self.parameters.mesons.flavours:
            others = self.propagators("other_", other_flavour=True)
            self.averages("neutral_average", self.mesons("neutral_mesons", quarks, others))

    @cached_property
    def sources(self) -> Node:
        """All sources of a configuration."""
        return self._sources("sources", self.labels)

    def first_sources(self) -> Node:
        """The sources of the first chunk."""
        first = first_chunk(self.labels, self.parameters.sources.chunk)
        return self._sources("first_sources", first)

    @cached_property
    def labels(self) -> list[str]:
        """Names of all sources."""
        section = self.parameters.sources
        return list(self.files) if section.files else [place.label for place in section.places()]

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files of sources, by name."""
        pattern = self.parameters.sources.files
        return source_files(pattern) if pattern else {}

    def _sources(self, name: str, labels: Sequence[str]) -> Node:
        section = self.parameters.sources
        files = {"path": self.files} if self.files else {}
        place = Place(name, {"source": labels}, {"source": section.chunk}, files)
        return self.workflow.add(section.stage, self.configuration, *self.source_links, place=place)

    @cached_property
    def source_links(self) -> list[Node]:
        """Smeared links of the sources' Laplacian, where a file asks for them."""
        smearing = self.parameters.sources.smearing
        if not smearing or not smearing.links:
            return []
        return [self.workflow.add(smearing.links.stage, self.configuration)]

    def propagators(self, prefix: str = "", other_flavour: bool = False) -> Node:
        """Propagators that mesons are made of: in memory, or those that are kept."""
        upstream = [self.operator, self.sources, *(self.other_hierarchy if other_flavour else self.hierarchy)]
        solves = self.parameters.solves
        stage = partial(propagator, solve=solves.to(solves.tolerance), other_flavour=other_flavour)
        solved = self.workflow.add(stage, *upstream, place=Place(f"{prefix}propagator"))
        if not self.parameters.keep_propagators:
            return solved
        return self.workflow.add(kept_propagator, solved, place=Place(f"{prefix}kept_propagator"))

    def mesons(self, name: str, *solved: Node) -> Node:
        """Two-point functions of each source."""
        momenta, extents = self.parameters.mesons.momenta, self.lattice.extents
        gammas, _ = dirac_channels(momenta, extents)
        stage = partial(meson_two_point, extents=extents, momenta=momenta, gammas=gammas)
        return self.workflow.add(stage, *solved, place=Place(name))

    def averages(self, name: str, mesons: Node) -> None:
        """Correlators and effective masses of the ensemble."""
        momenta = self.parameters.mesons.momenta
        gammas, channels = dirac_channels(momenta, self.lattice.extents)
        average = partial(
            meson_average,
            momenta=momenta,
            jackknife_bin=self.parameters.analysis.jackknife_bin,
            gammas=gammas,
            channels=channels,
        )
        self.workflow.add(average, mesons, place=Place(name))

    def planned_columns(self, first: Node) -> int:
        """Right-hand sides of a configuration."""
        return len(self.labels) * columns_of(first) * (1 + ("neutral" in self.parameters.mesons.flavours))

    def variants(self) -> Iterator[tuple[str, MesonParameters]]:
        """Other solvers, and other blocks."""
        yield from variants.each(self.parameters, "solves.solver", ("bicgstab", "multigrid"))
        yield from variants.each(self.parameters, "solves.block", (4, 12))

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller chunks, and what all solves of such quarks may do with less."""
        return {"sources.chunk": variants.less(self.parameters.sources.chunk), **super().economies()}

    def physics(self) -> dict[str, Any]:
        """The quark, its sources, and the operators with their sign."""
        sources = self.parameters.sources.model_dump(mode="json", exclude_none=True, exclude={"chunk"})
        definition = DEFINITIONS[self.parameters.sources.kind]
        momentum = "p = 2 pi n / L; " if "C_G(p, t)" in definition else ""
        return {
            **super().physics(),
            "operator": "O_G = psibar_2 G psi_1, point at the sink; Dirac matrices G in the DeGrand-Rossi "
            "basis",
            "sources": sources,
            "definition": f"{definition}; {momentum}mean over sources",
            "sign": "that of <O O^dag>: the pion's is positive; t counts from the source",
        }


WORKFLOW = MesonsWorkflow

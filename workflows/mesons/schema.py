"""Schema of a file of the workflow `mesons`: its sections, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import least_steps
from stages.mesons.sources import (
    Sources,
    file_sources,
    point_sources,
    smeared_sources,
    wall_sources,
    z2_wall_sources,
)
from workflows import (
    FileSection,
    Flavours,
    LinkSmearingSection,
    Location,
    Problem,
    QuarkParameters,
    QuarkSourceSection,
    Triples,
    Usual,
    aliases,
)
from workflows.mesons.sources import file_misfits


class SourceSmearingSection(FileSection):
    """Gaussian smearing on the source's time slice (`stages.lqcd.spectroscopy.quark_sources`)."""

    width: Annotated[
        float, Usual(0.3, 30.0, "a narrower source is a point, a wider one fills the lattice")
    ] = Field(gt=0)
    """Width of the Gaussian, in sites."""
    steps: int = Field(ge=1)
    """Steps that approximate it."""
    links: LinkSmearingSection | None = None
    """Smearing of the Laplacian's links; default: the configuration's own."""

    def doubts(self) -> Iterator[Problem]:
        """Too few steps."""
        if self.steps < (stable := least_steps(self.width)):
            yield (
                (),
                f"width {self.width:g} in {self.steps} steps amplifies short waves: take at least "
                f"1.5 width^2 = {stable:g} steps",
            )


class SourceSection(QuarkSourceSection):
    """Sources of quarks."""

    needs: ClassVar = {
        "point": {"times"},
        "smeared": {"times", "smearing"},
        "wall": {"times"},
        "z2_wall": {"times", "noise"},
        "file": {"files"},
    }
    may_have: ClassVar = {"point": {"points"}, "smeared": {"points"}}
    at_rest = ("wall", "z2_wall")

    kind: Literal["point", "smeared", "wall", "z2_wall", "file"]
    """Point, Gaussian-smeared point, wall, wall of Z2 noise, or fields from files."""
    smearing: SourceSmearingSection | None = None
    """Smearing of sources of kind smeared."""
    files: str | None = None
    """NumPy files [t, z, y, x, spin, colour, column], the same for every configuration: a shell pattern."""

    @property
    def stage(self) -> Callable[..., Sources]:
        """The stage that makes sources of this kind."""
        if self.kind == "smeared" and self.smearing:
            return partial(smeared_sources, width=self.smearing.width, steps=self.smearing.steps)
        if self.kind == "z2_wall" and self.noise:
            return partial(z2_wall_sources, seed=self.noise.seed)
        kinds: dict[str, Callable[..., Sources]]
        kinds = {"point": point_sources, "wall": wall_sources, "file": file_sources}
        return kinds[self.kind]

    def contradictions(self) -> Iterator[Problem]:
        """Keys that do not suit the kind, and files that are to be solved for together."""
        yield from super().contradictions()
        if self.kind == "file" and self.chunk > 1:
            yield ("chunk",), "sources in files are solved for one at a time: leave it out"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Places that are not on the lattice, and files that are no sources on it."""
        yield from super().misfits(lattice)
        if self.kind == "file" and self.files:
            yield from file_misfits(self.files, lattice)


class MesonSection(FileSection):
    """The two-point functions; all sixteen Dirac matrices are always measured."""

    momenta: Triples = ((0, 0, 0),)
    """Momenta of the sink, in units of 2 pi / L."""
    flavours: Flavours = ("charged",)
    """Mesons of a twisted doublet: charged ones, which are always measured, and the connected part of neutral
    ones."""

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Momenta that are others on the lattice."""
        yield from aliases(self.momenta, lattice)


class MesonParameters(QuarkParameters):
    """Parameters of Wilson-clover propagators and meson two-point functions."""

    sources: SourceSection
    """Where quarks start: points, walls, or fields from files."""
    mesons: MesonSection = MesonSection()
    """Two-point functions; all sixteen Dirac matrices are always measured."""
    keep_propagators: bool = False
    """Commit propagators to the store, too; otherwise they live as long as their contractions."""

    @property
    def needs_fixed_gauge(self) -> Location | None:
        """The kind of sources, if they are walls."""
        return ("sources", "kind") if self.sources.kind == "wall" else None

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        yield from self.sources.noisy(self.mesons.momenta)
        yield from self.neutral_misfits(("mesons", "flavours"), self.mesons.flavours)

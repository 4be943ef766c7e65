"""Schema of a file of the workflow `mesons`: its sections, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place
from stages.lqcd.spectroscopy.smearing import least_steps
from stages.mesons.sources import (
    Sources,
    file_sources,
    point_sources,
    smeared_sources,
    wall_sources,
    z2_wall_sources,
)
from workflows.mesons.sources import file_misfits
from workflows.parameter_file import FileSection, Location, Problem
from workflows.shared.link_smearing import LinkSmearingSection
from workflows.shared.quark_sections import (
    QuarkParameters,
    Times,
    Triples,
    WallNoiseSection,
    aliases,
    repeated,
)
from workflows.shared.sections import Usual
from workflows.shared.solver_precision import precision_faults

WALLS = ("wall", "z2_wall")


class SourceSmearingSection(FileSection):
    """Gaussian smearing on the source's time slice (`stages.lqcd.spectroscopy.smearing`)."""

    width: Annotated[
        float, Usual(0.3, 30.0, "a narrower source is a point, a wider one fills the lattice")
    ] = Field(gt=0)
    """Width of the Gaussian, in sites."""
    steps: int = Field(ge=1)
    """Steps that approximate it."""
    links: LinkSmearingSection | None = None
    """Smearing of the Laplacian's links; the configuration's own unless given."""


class SourceSection(FileSection):
    """Sources of quarks."""

    kind: Literal["point", "smeared", "wall", "z2_wall", "file"]
    """Point, Gaussian-smeared point, wall, wall of Z2 noise, or fields from files."""
    times: Times | None = None
    """Time slices of the sources."""
    points: Triples | None = None
    """Their places [x, y, z]; the origin unless given."""
    noise: WallNoiseSection | None = None
    """Of z2_wall sources."""
    smearing: SourceSmearingSection | None = None
    """Of smeared sources."""
    files: str | None = None
    """NumPy files [t, z, y, x, spin, colour, column], the same for every configuration: a shell pattern."""
    chunk: int = Field(default=1, ge=1)
    """Sources that are solved for, committed and repeated together."""

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

    def places(self) -> list[SourcePlace]:
        """Places of all sources but files."""
        times = self.times or ()
        if self.kind in ("point", "smeared"):
            points = [(p[0], p[1], p[2]) for p in self.points or ((0, 0, 0),)]
            return [SourcePlace(time, point) for time in times for point in points]
        if self.kind == "z2_wall":
            vectors = self.noise.vectors if self.noise else 1
            return [SourcePlace(time, None, number) for time in times for number in range(vectors)]
        return [SourcePlace(time) for time in times]


class MesonSection(FileSection):
    """The two-point functions; all sixteen Dirac matrices are always measured."""

    momenta: Triples = ((0, 0, 0),)
    """Momenta of the sink, in units of 2 pi / L."""


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

    def doubts(self) -> Iterator[Problem]:
        """Smearing that roughens, and what is odd about the quark."""
        smearing = self.sources.smearing
        if smearing and smearing.steps < (stable := least_steps(smearing.width)):
            yield (
                ("sources", "smearing"),
                f"width {smearing.width:g} in {smearing.steps} steps amplifies short waves: take at least "
                f"1.5 width^2 = {stable:g} steps",
            )
        if smearing and smearing.links:
            yield from smearing.links.doubts("sources", "smearing", "links")
        yield from super().doubts()

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        yield from precision_faults(self.solves.solver, self.solves.precision, staggered=False)
        sources = self.sources
        kind, keys = sources.kind, {key for key, value in sources if value is not None} - {"kind", "chunk"}
        for key in sorted(NEEDS[kind] - keys):
            yield ("sources",), f"sources of kind {kind} need `{key}`"
        for key in sorted(keys - NEEDS[kind] - MAY_HAVE.get(kind, set())):
            yield ("sources", key), f"does not belong to sources of kind {kind}: leave it out"
        if kind == "file" and sources.chunk > 1:
            yield ("sources", "chunk"), "sources in files are solved for one at a time: leave it out"
        for location, values in (
            (("sources", "times"), sources.times or ()),
            (("sources", "points"), sources.points or ()),
            (("mesons", "momenta"), self.mesons.momenta),
        ):
            yield from ((location, text) for text in repeated(values))
        moving = [list(p) for p in self.mesons.momenta if any(p)]
        if kind in WALLS and moving:
            yield (
                ("mesons", "momenta"),
                f"a {kind} source projects to zero momentum, and {moving[0]} would be noise alone: "
                "leave it out",
            )

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Problems with the lattice."""
        yield from aliases(self.mesons.momenta, lattice, "mesons", "momenta")
        for place in self.sources.places():
            try:
                check_place(lattice, place)
            except InputError as error:
                yield ("sources", "points" if 0 <= place.time < lattice.time_extent else "times"), str(error)
        yield from super().misfits(lattice)
        if self.sources.kind == "file" and self.sources.files:
            yield from file_misfits(self.sources.files, lattice)


NEEDS = {
    "point": {"times"},
    "smeared": {"times", "smearing"},
    "wall": {"times"},
    "z2_wall": {"times", "noise"},
    "file": {"files"},
}
MAY_HAVE = {"point": {"points"}, "smeared": {"points"}}

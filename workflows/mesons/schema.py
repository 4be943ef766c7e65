"""What a file of the workflow `mesons` may say: its sections, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quarkline.errors import InputError
from stages.lqcd.dirac.wilson import kappa_of_mass, mass_of_kappa
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.levels import check_levels, default_levels
from stages.lqcd.solvers.named import MULTIGRID
from stages.lqcd.spectroscopy.quark_sources import Place, check_place
from workflows.g2_disconnected.noise_schema import Seed
from workflows.g2_disconnected.schema import Ensemble, misplaced_report, refuse, too_few_bins
from workflows.parameter_file import Location, ParameterFile, Section, validated

LARGEST = 1_000_000
"""Of a momentum's numbers, by size: plane waves of larger ones have lost digits."""

Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Triple = Annotated[tuple[Number, ...], Field(strict=False, min_length=3, max_length=3)]
Times = Annotated[tuple[int, ...], Field(strict=False, min_length=1)]
Triples = Annotated[tuple[Triple, ...], Field(strict=False, min_length=1)]
WALLS = ("wall", "z2_wall")


class Stout(Section):
    """Stout smearing of the quark's links."""

    rho: float = Field(gt=0)
    steps: int = Field(ge=1)
    spatial: bool = False
    """Links in time neither smeared nor used."""

    @model_validator(mode="after")
    def _stable(self) -> Stout:
        """A mode of lattice momentum p is damped by 1 - rho p^2, with p^2 up to 16, or 12 in space."""
        if self.rho > (most := 1 / 6 if self.spatial else 1 / 8):
            raise ValueError(f"rho = {self.rho} lets short waves grow: take at most {most:.4g}")
        return self


class Quark(Section):
    """A Wilson-clover quark, as Chroma defines it."""

    kappa: float | None = None
    mass: float | None = None
    """m = 1 / (2 kappa) - 4, lattice units; usually negative for light quarks."""
    csw: float | None = None
    csw_r: float | None = None
    csw_t: float | None = None
    """Of the spatial and the temporal planes, instead of csw."""
    xi0: float = Field(default=1.0, gt=0)
    nu: float = Field(default=1.0, gt=0)
    stout: Stout | None = None
    boundary: Literal["periodic", "antiperiodic", "dirichlet"]

    @model_validator(mode="after")
    def _one_of_each(self) -> Quark:
        if (self.kappa is None) == (self.mass is None):
            raise ValueError("give either `kappa` or `mass`, and not both: mass = 1 / (2 kappa) - 4")
        if self.csw is not None and (self.csw_r is not None or self.csw_t is not None):
            raise ValueError("give either `csw`, or `csw_r` and `csw_t`, and not both")
        if (self.csw_r is None) != (self.csw_t is None):
            raise ValueError("`csw_r` and `csw_t` belong together: give both")
        try:
            kappa_of_mass(self.mass) if self.mass is not None else mass_of_kappa(self.kappa or 0.0)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def clover(self) -> float | tuple[float, float]:
        """csw, or (csw_r, csw_t)."""
        if self.csw_r is not None and self.csw_t is not None:
            return self.csw_r, self.csw_t
        return self.csw or 0.0


class SourceNoise(Section):
    """The noise of walls."""

    seed: Seed
    vectors: int = Field(default=1, ge=1)


class Smearing(Section):
    """Gaussian smearing on the source's time slice (`stages.lqcd.spectroscopy.smearing`)."""

    width: float = Field(gt=0)
    steps: int = Field(ge=1)


class SourceSection(Section):
    """Where quarks start."""

    kind: Literal["point", "smeared", "wall", "z2_wall", "file"]
    times: Times | None = None
    points: Triples | None = None
    """In space; the origin unless given."""
    noise: SourceNoise | None = None
    smearing: Smearing | None = None
    files: str | None = None
    """NumPy files [t, z, y, x, spin, colour, column], the same for every configuration."""
    chunk: int = Field(default=1, ge=1)
    """Sources that are solved for, committed and repeated together."""

    @property
    def columns(self) -> int:
        """Right-hand sides of a source; of a user's file as many as it has, at least 4."""
        return 4 if self.kind == "z2_wall" else 12

    def places(self) -> list[Place]:
        """Of all sources but files."""
        times = self.times or ()
        if self.kind in ("point", "smeared"):
            points = [(p[0], p[1], p[2]) for p in self.points or ((0, 0, 0),)]
            return [Place(time, point) for time in times for point in points]
        if self.kind == "z2_wall":
            vectors = self.noise.vectors if self.noise else 1
            return [Place(time, None, number) for time in times for number in range(vectors)]
        return [Place(time) for time in times]


class MesonSolves(Section):
    """How propagators are solved for, `block` right-hand sides at a time."""

    solver: Literal["auto", "multigrid", "bicgstab", "cgnr", "block_cgrq", "gcr"]
    precision: Literal["double", "double-single"] = "double-single"
    tolerance: float = Field(ge=1e-14, lt=1)
    max_iterations: int = Field(default=20_000, ge=1)
    block: int = Field(default=24, ge=1, le=64)


class MultigridLevel(Section):
    """A grid that is not the coarsest."""

    aggregate: Annotated[tuple[int, ...], Field(strict=False, min_length=4, max_length=4)]
    vectors: int = Field(default=24, ge=1)
    refinements: int = Field(default=2, ge=0)
    smoothing: int = Field(default=6, ge=1)
    """Steps before and after each coarse correction."""
    steps: int = Field(default=3, ge=1)
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    """Of GCR on the grid below in each cycle, whichever comes first."""


class MultigridSection(Section):
    """The hierarchy of `solver: multigrid`; levels that suit the lattice unless given."""

    levels: Annotated[tuple[MultigridLevel, ...], Field(strict=False, min_length=1)] | None = None
    seed: Seed = 20090311

    def plain(self, lattice: Lattice) -> list[dict[str, Any]]:
        """The levels as stages take them."""
        given = self.levels or [MultigridLevel(**level) for level in default_levels(lattice)]
        return [{**level.model_dump(), "aggregate": list(level.aggregate)} for level in given]


class MesonSection(Section):
    """The two-point functions; all sixteen Dirac matrices are always measured."""

    momenta: Triples = ((0, 0, 0),)
    """Of the sink, in units of 2 pi / L."""


class MesonAnalysis(Section):
    """The errors of the ensemble average."""

    jackknife_bin: int = Field(default=1, ge=1)


class Mesons(Section):
    """Parameters of Wilson-clover propagators and meson two-point functions."""

    workflow: Literal["mesons"]
    ensemble: Ensemble
    quark: Quark
    sources: SourceSection
    solves: MesonSolves
    multigrid: MultigridSection = MultigridSection()
    mesons: MesonSection = MesonSection()
    analysis: MesonAnalysis = MesonAnalysis()
    keep_propagators: bool = False
    """Commit propagators to the store, too; otherwise they live as long as their contractions."""
    store: str
    report: str


def read_mesons(file: ParameterFile) -> Mesons:
    """The checked parameters of `file`.

    Raises:
        InputError: every problem of the file, with its line.
    """
    parameters = validated(file, Mesons)
    refuse(file, contradictions(parameters))
    return parameters


NEEDS = {
    "point": {"times"},
    "smeared": {"times", "smearing"},
    "wall": {"times"},
    "z2_wall": {"times", "noise"},
    "file": {"files"},
}
MAY_HAVE = {"point": {"points"}, "smeared": {"points"}}


def contradictions(parameters: Mesons) -> Iterator[tuple[Location, str]]:
    """What no single value shows: sections that do not fit each other."""
    sources = parameters.sources
    kind, given = sources.kind, {key for key, value in sources if value is not None} - {"kind", "chunk"}
    for key in sorted(NEEDS[kind] - given):
        yield ("sources",), f"sources of kind {kind} need `{key}`"
    for key in sorted(given - NEEDS[kind] - MAY_HAVE.get(kind, set())):
        yield ("sources", key), f"does not belong to sources of kind {kind}: leave it out"
    if kind == "file" and sources.chunk > 1:
        yield ("sources", "chunk"), "sources in files are solved for one at a time: leave it out"
    for key, values in (("times", sources.times or ()), ("points", sources.points or ())):
        if len(set(values)) < len(values):
            yield ("sources", key), "names a source twice"
    if len(set(parameters.mesons.momenta)) < len(parameters.mesons.momenta):
        yield ("mesons", "momenta"), "names a momentum twice"
    moving = [list(p) for p in parameters.mesons.momenta if any(p)]
    if kind in WALLS and moving:
        yield (
            ("mesons", "momenta"),
            f"a {kind} source projects to zero momentum, and {moving[0]} would be noise alone: leave it out",
        )
    yield from misplaced_report(parameters.report, parameters.store)


def misfits(parameters: Mesons, lattice: Lattice, configurations: int) -> Iterator[tuple[Location, str]]:
    """What does not fit the ensemble: its lattice, its number of configurations."""
    for place in parameters.sources.places():
        try:
            check_place(lattice, place)
        except InputError as error:
            yield ("sources", "points" if 0 <= place.time < lattice.time_extent else "times"), str(error)
    yield from level_misfits(parameters.multigrid, parameters.solves, lattice)
    yield from too_few_bins(configurations, parameters.analysis.jackknife_bin)


def level_misfits(
    section: MultigridSection, solves: MesonSolves, lattice: Lattice
) -> Iterator[tuple[Location, str]]:
    """Levels of multigrid that do not fit the lattice, where multigrid may solve."""
    if solves.solver in (MULTIGRID, "auto"):
        try:
            check_levels(section.plain(lattice), lattice)
        except InputError as error:
            yield ("multigrid", "levels"), str(error)

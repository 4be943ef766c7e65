"""Schema of a file of the workflow `hisq_mesons`: its sections, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from stages.base.errors import suggestion
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SpinTaste, operators_of
from workflows import (
    NAIK_EPSILON,
    STAGGERED_MASS,
    TOLERANCE,
    DeflationSection,
    FileSection,
    LinkSmearingSection,
    Location,
    Names,
    PositiveSolves,
    Problem,
    QuarkSourceSection,
    Times,
    Triples,
    WorkflowParameters,
    aliases,
    winding,
)


class HisqSection(FileSection):
    """A HISQ quark, as MILC defines it."""

    mass: Annotated[float, STAGGERED_MASS] = Field(gt=0)
    """m of M = 2 m + D, lattice units."""
    naik_epsilon: Annotated[float, NAIK_EPSILON] = 0.0
    """Epsilon of the Naik term, a correction for heavy quarks."""
    boundary: Literal["periodic", "antiperiodic"]
    """Boundary condition in time."""


class StaggeredSourceSection(QuarkSourceSection):
    """Sources of quarks."""

    needs: ClassVar = {"point": {"times"}, "corner_wall": {"times"}, "random_wall": {"times", "noise"}}
    may_have: ClassVar = {"point": {"points"}}
    at_rest = ("corner_wall", "random_wall")

    kind: Literal["point", "corner_wall", "random_wall"]
    """Point, ones on all sites of even x, y and z of a slice (for a fixed gauge), or Z2 noise on a slice."""
    times: Times
    """Time slices of the sources."""


class StaggeredMesonSection(FileSection):
    """The measured mesons."""

    operators: Names = ("pion5", "pion05", "rhoi", "rhoi0")
    """Mesons by MILC's names: pion5, pion05, rhoi, rhoi0, which are local, pioni5, pionij, rhois, rho0, of
    one link, pioni, pioni0, of two, and pions, pion0, of three.
    """
    momenta: Triples = ((0, 0, 0),)
    """Momenta of the sink, in units of 2 pi / L."""
    links: LinkSmearingSection | None = None
    """Smearing of the links in operators; default: the configuration's own."""

    @field_validator("operators")
    @classmethod
    def _known(cls, operators: tuple[str, ...]) -> tuple[str, ...]:
        for name in operators:
            if name not in MULTIPLETS:
                raise ValueError(f"no staggered meson is named {name!r}{suggestion(name, MULTIPLETS)}")
        return operators

    @property
    def labels(self) -> tuple[str, ...]:
        """All operators, spin-taste."""
        return operators_of(self.operators)

    @property
    def displaced(self) -> bool:
        """True if an operator has links."""
        return any(SpinTaste.parse(label).shifts for label in self.labels)

    def contradictions(self) -> Iterator[Problem]:
        """Smeared links that no operator has."""
        if self.links and not self.displaced:
            yield ("links",), "local operators have no links: leave it out, or add such as rhois"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Momenta that are others on the lattice."""
        yield from aliases(self.momenta, lattice)


class StaggeredSolves(PositiveSolves):
    """Solution of the linear systems, `block` right-hand sides at a time."""

    tolerance: Annotated[float, TOLERANCE] = Field(ge=1e-14, lt=1)
    """|b - A x| / |b| of the even sites' system."""


class HisqMesonParameters(WorkflowParameters):
    """Parameters of pions and rhos of HISQ quarks."""

    quark: HisqSection
    """The quark's mass and boundary condition."""
    sources: StaggeredSourceSection
    """Where quarks start: points or walls."""
    mesons: StaggeredMesonSection = StaggeredMesonSection()
    """The measured mesons, their momenta, and links of operators."""
    solves: StaggeredSolves
    """Solution of the linear systems."""
    deflation: DeflationSection | None = None
    """Lowest eigenvectors of each configuration, for deflation; default: none."""

    @property
    def vectors_set_noise(self) -> bool:
        """Solves are exact, and low modes have no part of their own."""
        return False

    @property
    def needs_fixed_gauge(self) -> Location | None:
        """The kind of sources, if they are corner walls."""
        return ("sources", "kind") if self.sources.kind == "corner_wall" else None

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        yield from self.sources.noisy(self.mesons.momenta)

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Problems with the lattice."""
        yield from winding(lattice, "quark")

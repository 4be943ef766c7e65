"""Schema of a file of the workflow `g2_connected`: its sections, their limits, and what must fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from pipeline import LARGEST
from stages.base.errors import suggestion
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.vector_currents import CURRENTS, hops_of
from workflows import (
    NAIK_EPSILON,
    SLOPPY,
    STAGGERED_MASS,
    TOLERANCE,
    AnalysisSection,
    DeflationSection,
    FileSection,
    Names,
    PositiveSolves,
    Problem,
    Seed,
    SloppySection,
    Times,
    Triples,
    WorkflowParameters,
    aliases,
    checked_parts,
    winding,
)

NAME = re.compile(r"(?!.*(_fine|_p\d+_\d+_\d+)$)[A-Za-z]\w*")
"""Of a quark: it ends the names of nodes."""
ROWS = 512
"""Rows of meson fields that are made, committed and repeated together."""
CHARM = 0.4
"""Mass above which a quark without naik_epsilon is doubtful."""


def _known(currents: tuple[str, ...]) -> tuple[str, ...]:
    for name in currents:
        if name not in CURRENTS:
            known = f"{suggestion(name, CURRENTS)}; known: {', '.join(CURRENTS)}"
            raise ValueError(f"no current is named {name!r}{known}")
    return currents


Currents = Annotated[Names, AfterValidator(_known)]


class LinkFilesSection(FileSection):
    """Fat and long links that another code made, with all their factors, as naik_epsilon."""

    fat: str
    """SciDAC file of a configuration's fat links; {name}, {stem}, {parent} and {grandparent} in it are parts
    of the path of its gauge field."""
    long: str
    """That of its long links."""
    phases: bool | None = None
    """Whether MILC's eta_mu is in them; default: as is recognised. The boundary condition is recognised,
    too, and must be that of `links.boundary`."""

    @field_validator("fat", "long")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        checked_parts(pattern)
        return pattern


class LinksSection(FileSection):
    """The quarks' links."""

    action: Literal["hisq"] = "hisq"
    """Fermion action: HISQ."""
    boundary: Literal["periodic", "antiperiodic"]
    """Boundary condition of the quarks in time."""


class OwnLinksSection(LinksSection):
    """The quarks' links: HISQ links of the configurations, or those of files."""

    files: LinkFilesSection | None = None
    """Links of another code, to compare with; default: made from the configurations."""


class LowModesSection(FileSection):
    """Which eigenvectors have their part of C(t) from all sources, and at which momenta."""

    ranks: str | None = None
    """Text file with the ranks of eigenvectors, from 0, in spaces or lines; default: all of `deflation`."""
    momenta: Triples = ((0, 0, 0),)
    """Momenta in units of 2 pi / L at which LL is made, too, of local operators: `low_low_light_p1_0_0`."""

    @property
    def moving(self) -> tuple[tuple[int, int, int], ...]:
        """Momenta but that at rest."""
        return tuple(momentum for momentum in self.momenta if any(momentum))

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Momenta that are another one."""
        yield from aliases(self.momenta, lattice)


class QuarkSection(FileSection):
    """A quark."""

    mass: Annotated[float, STAGGERED_MASS] = Field(gt=0)
    """m of M = 2 m + D, lattice units."""
    naik_epsilon: Annotated[float, NAIK_EPSILON] = 0.0
    """Epsilon of the Naik term, a correction for heavy quarks."""

    def doubts(self) -> Iterator[Problem]:
        """A heavy quark without its correction."""
        if self.mass >= CHARM and not self.naik_epsilon:
            text = f"is 0 at mass {self.mass:g}: charm has about -0.7 m^2, {-0.7 * self.mass**2:.2g}"
            yield ("naik_epsilon",), text


class WallSection(FileSection):
    """Random walls: noise on time slices that are drawn for each configuration."""

    seed: Seed
    """Seed of noise and times, which depend on it, the configuration's label and the wall's number only."""
    walls: int = Field(ge=2, le=LARGEST)
    """Random walls per configuration; raise it later, and only the new ones are solved for. T in a row have
    all time slices."""
    chunk: int = Field(default=1, ge=1)
    """Walls that are solved for, committed and repeated together."""

    def contradictions(self) -> Iterator[Problem]:
        """A chunk that does not divide the walls."""
        if self.walls % self.chunk:
            yield ("chunk",), f"{self.chunk} does not divide the {self.walls} walls: change one of the two"


class FineSection(FileSection):
    """The few solves that correct the sloppy ones' bias: the first `walls` walls."""

    tolerance: Annotated[float, TOLERANCE] = Field(ge=1e-14, lt=1)
    """|b - A x| / |b| of the solves that remove the sloppy ones' bias."""
    walls: int = Field(ge=2)
    """Walls that are solved for again, the first ones; their times are drawn, too."""


class SolvesSection(PositiveSolves):
    """Solution of the linear systems, `block` right-hand sides at a time."""

    sloppy: SloppySection
    """The solves of every wall."""
    fine: FineSection | None = None
    """Solves of the first few walls again, to remove the sloppy bias; default: none."""


class ConnectedAnalysis(AnalysisSection):
    """The errors of the ensemble average, and what the report compares."""

    times: Times | None = None
    """Time slices at which the report compares estimators; default: T/4 and 7T/16."""

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Times that are not on the lattice."""
        for time in self.times or ():
            if not 0 <= time < lattice.time_extent:
                last = lattice.time_extent - 1
                yield ("times",), f"t = {time} is not on {lattice}, whose times are 0 to {last}"


class TargetSection(FileSection):
    """A stochastic error of C(t) at fixed gauge field, for which walls are added to those of `noise`."""

    error: float = Field(gt=0)
    """Of one configuration, root mean square over configurations and the window."""
    quark: str
    """The quark whose C(t) it is."""
    current: str
    """The current, one of `currents`."""
    window: tuple[int, ...] = Field(strict=False, min_length=2, max_length=2)
    """First and last t."""
    most_walls: int = Field(default=1024, ge=LEAST_VECTORS, le=LARGEST)
    """Walls per configuration that are never exceeded."""

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """A window that the lattice does not have."""
        first, last = self.window
        if not 0 <= first <= last < lattice.time_extent:
            text = f"{[first, last]} is no first and last t of {lattice}: take 0 to {lattice.time_extent - 1}"
            yield ("window",), text


class ConnectedParameters(WorkflowParameters):
    """Parameters of connected vector correlators."""

    links: OwnLinksSection
    """The action and its links."""
    quarks: dict[str, QuarkSection] = Field(min_length=1)
    """Quarks by name, such as light, strange, charm, up, down; all on the same noise."""
    currents: Currents
    """Vector currents, the same at source and sink: local (gamma_k x gamma_k), one_link (the taste singlet,
    on thin links), conserved; and pion, the Goldstone pion. Vectors are means over x, y and z."""
    deflation: DeflationSection | None = None
    """Lowest eigenvectors of each configuration, whose part of C(t) is exact over all sources, for all quarks
    with the naik_epsilon of the first one; default: none."""
    low_modes: LowModesSection = LowModesSection()
    """Those of the eigenvectors that have their part of C(t) from all sources; default: all."""
    noise: WallSection
    """Random walls, for what low modes leave."""
    solves: SolvesSection
    """Solution of the linear systems."""
    analysis: ConnectedAnalysis = ConnectedAnalysis()
    """Errors of the ensemble average."""
    target: TargetSection | None = None
    """A stochastic error that walls are added for, round by round."""

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators of the currents."""
        return tuple(label for name in self.currents for label in CURRENTS[name])

    def has_modes(self, quark: str) -> bool:
        """True if the eigenvectors are those of a quark's operator."""
        first = next(iter(self.quarks.values()))
        return bool(self.deflation) and self.quarks[quark].naik_epsilon == first.naik_epsilon

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        yield from self._of_others()
        fine, walls, chunk = self.solves.fine, self.noise.walls, self.noise.chunk
        if target := self.target:
            for key, names in (("quark", self.quarks), ("current", self.currents)):
                if (name := getattr(target, key)) not in names:
                    yield ("target", key), f"{name!r} is none of {', '.join(names)}"
            if min(walls, fine.walls if fine else LARGEST) < LEAST_VECTORS:
                text = f"needs at least {LEAST_VECTORS} walls, and as many fine ones, to begin with"
                yield ("target",), text
            if target.most_walls < walls:
                text = f"{target.most_walls} is less than `noise.walls`, {walls}: raise it"
                yield ("target", "most_walls"), text
        for name in self.quarks:
            if not NAME.fullmatch(name):
                text = "take letters, digits and _, without _fine or such as _p1_0_0 at the end"
                yield ("quarks", name), f"{name!r} is no name of a quark: {text}"
        if not fine:
            return
        if fine.tolerance > (sloppy := self.solves.sloppy.tolerance):
            text = f"{fine.tolerance:g} must be tighter than the sloppy {sloppy:g}"
            yield ("solves", "fine", "tolerance"), text
        if fine.walls > walls:
            text = f"{fine.walls} fine walls, but `noise.walls` is {walls}: at most that"
            yield ("solves", "fine", "walls"), text
        elif fine.walls % chunk and not walls % chunk:
            text = f"{fine.walls} is no multiple of `noise.chunk`, {chunk}: walls are solved {chunk} at a"
            yield ("solves", "fine", "walls"), f"{text} time, change one of the two"

    def _of_others(self) -> Iterator[Problem]:
        """Problems of links of files, ranks and momenta."""
        if self.links.files and self.ensemble.heatbath:
            text = "are of configurations in files, and `ensemble.heatbath` makes others: leave them out"
            yield ("links", "files"), text
        for name, quark in self.quarks.items():
            if self.links.files and quark.naik_epsilon:
                text = f"{quark.naik_epsilon:g} is not used: links in files have an epsilon: leave it out"
                yield ("quarks", name, "naik_epsilon"), text
        if (self.low_modes.ranks is not None or self.low_modes.moving) and not self.deflation:
            yield ("low_modes",), "needs a section `deflation`, whose eigenvectors they are"
        hopping = [name for name in self.currents if hops_of(CURRENTS[name][0])]
        if hopping and self.low_modes.moving:
            text = f"currents of hops, {', '.join(hopping)}, are made at rest: take local and pion"
            yield ("low_modes", "momenta"), text

    def doubts(self) -> Iterator[Problem]:
        """Tolerances that are legal but rarely meant."""
        sloppy = self.solves.sloppy.tolerance
        if not self.solves.fine and TOLERANCE.most / 1e3 < sloppy <= SLOPPY.most:
            text = f"{sloppy:g} leaves a bias, and there are no `fine` solves to remove it"
            yield ("solves", "sloppy", "tolerance"), text

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Problems with the lattice."""
        yield from winding(lattice, "links")

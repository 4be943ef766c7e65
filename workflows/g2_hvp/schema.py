"""Schema of a file of the workflow `g2_hvp`: its sections, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from pipeline import LARGEST
from stages.base.errors import InputError, suggestion
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.hvp_kernel import HBARC, Muon
from stages.lqcd.analysis.hvp_sum import HvpSum
from stages.lqcd.analysis.milc_ensembles import Ensemble, milc_ensemble, own_ensembles
from stages.lqcd.analysis.scale import Scale
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from stages.lqcd.lattice.geometry import Lattice
from workflows import (
    DeflationSection,
    EnsembleSection,
    FileSection,
    Location,
    ParameterFile,
    Problem,
    WorkflowParameters,
    winding,
)
from workflows.g2_connected import schema as walls
from workflows.g2_disconnected import schema as loops
from workflows.g2_disconnected.noise_schema import EstimatorSection, NoiseSection
from workflows.g2_hvp.analysis_schema import HvpAnalysis

RHO = 0.775
"""Mass of the rho in GeV: of its correlator is the slope by the lattice spacing while there are no data."""
SEA = 0.1
"""Relative difference from the sea's mass above which a valence mass is doubtful."""
QUARKS = ("light", "strange", "charm", "up", "down")
"""Quarks whose charges are known; up and down correct for strong isospin breaking."""


class HvpEnsemble(EnsembleSection):
    """Gauge configurations, and the published ensemble that they are of."""

    name: str | None = None
    """Name of a public MILC ensemble, l4864f211b600m00184m0507m628: its scale is taken, and extents and
    masses are compared."""
    table: str | None = None
    """YAML file with a group's own ensembles by name: extents, beta, masses, a_fm, error, charm_epsilon,
    source."""

    @property
    def published(self) -> Ensemble | None:
        """The ensemble of that name. Raises InputError."""
        return milc_ensemble(self.name, own_ensembles(self.table)) if self.name else None

    def contradictions(self) -> Iterator[Problem]:
        """A name that no table has, or a table that cannot be read."""
        if self.table and not self.name:
            yield ("table",), "needs `name`, one of the ensembles in it"
        try:
            _ = self.published
        except InputError as error:
            yield ("name",), str(error)

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """A lattice that is not the ensemble's."""
        if (published := self.published) and published.extents != lattice.extents:
            own = f"is an ensemble of {'x'.join(map(str, published.extents))}"
            yield ("name",), f"{self.name} {own}, but the configurations are of {lattice}"


class PartSection(FileSection):
    """One part of the correlator."""

    only: str = "*"
    """Shell pattern of the labels of configurations that it is measured on; parts are resampled together."""


class ConnectedSection(PartSection):
    """The connected part, as in the workflow g2_connected."""

    currents: walls.Currents
    """Vector currents: local, one_link, conserved; and pion. The one in `analysis.current` enters a_mu; with
    conserved beside it, Z_V may be taken from their ratio."""
    noise: walls.WallSection
    """Random walls, for what low modes leave."""
    solves: walls.SolvesSection
    """Solution of the linear systems."""


class DisconnectedSection(PartSection):
    """The disconnected part, light - strange, as in the workflow g2_disconnected."""

    noise: NoiseSection
    """Stochastic sources."""
    solves: loops.SolvesSection
    """Solution of the linear systems."""
    estimator: EstimatorSection = EstimatorSection()
    """How loops and their difference are estimated."""
    current: loops.CurrentSection = loops.CurrentSection(links="thin")
    """Links of the one-link current of loops."""


class AMuTarget(FileSection):
    """A relative error of a_mu."""

    window: str = "total"
    """One of `analysis.windows`."""
    relative: float = Field(gt=0, lt=1)
    """Error of a_mu in that window, as a fraction."""


class HvpTargetSection(FileSection):
    """An error that noise vectors and walls are added for, round by round, from those in the file."""

    a_mu: AMuTarget
    """What is to be reached."""
    most_vectors: int = Field(default=1024, ge=2)
    """Noise vectors per configuration that are never exceeded."""
    most_walls: int = Field(default=1024, ge=2)
    """Random walls per configuration that are never exceeded."""
    eigenvectors: tuple[int, ...] | None = Field(default=None, strict=False)
    """Numbers of eigenvectors to try on the first configuration beside those of `deflation`, 0 for none; the
    cheapest is taken. Default: a quarter and, unless loops average them, none; [] tries no others."""


class HvpParameters(WorkflowParameters):
    """Parameters from configurations to a_mu."""

    ensemble: HvpEnsemble
    """Gauge configurations: generated, or read from files."""
    links: walls.LinksSection
    """Links of the quarks, which are HISQ."""
    quarks: dict[str, walls.QuarkSection]
    """Valence quarks; light is the mean of up and down."""
    deflation: DeflationSection | None = None
    """Lowest eigenvectors of each configuration, for loops and connected correlators; default: none."""
    connected: ConnectedSection
    """Connected correlators of all quarks."""
    disconnected: DisconnectedSection | None = None
    """The disconnected part; default: none, and it is missing in the budget."""
    analysis: HvpAnalysis
    """From correlators to a_mu."""
    target: HvpTargetSection | None = None
    """An error of a_mu to reach."""

    @property
    def _least(self) -> bool:  # eigenvectors: loops may average theirs
        return bool(self.disconnected and self.disconnected.estimator.low_modes)

    @property
    def tried(self) -> list[int]:
        """Numbers of eigenvectors that a target tries, first all; by default no others with few walls."""
        vectors = self.deflation.vectors if self.deflation else None
        if not self.target or not vectors:
            return []
        others = self.target.eigenvectors
        if others is None:
            few = self.connected.noise.walls < LEAST_VECTORS
            others = () if few else (max(vectors // 4, 1), *range(1 - self._least))
        return [*dict.fromkeys((vectors, *others))]

    def check(self, file: ParameterFile) -> None:
        """As of all workflows; what the lattice does not have is looked at where all else is right."""
        file.refuse(self.gathered(lambda section: section.contradictions()))
        super().check(file)

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        quarks, analysis = self.quarks, self.analysis
        for name in quarks:
            if name not in QUARKS:
                yield ("quarks", name), f"no quark is named {name!r}{suggestion(name, QUARKS)}"
        if "light" not in quarks:
            yield ("quarks",), "there is no light quark: add `light: {mass: ...}`"
        if "charm" in quarks and "naik_epsilon" not in quarks["charm"].model_fields_set:
            yield ("quarks", "charm"), _no_epsilon(self.ensemble)
        if ("up" in quarks) != ("down" in quarks):
            yield ("quarks",), "strong isospin breaking takes both `up` and `down`: add the other one"
        yield from self._current_faults()
        if self.disconnected and "strange" not in quarks:
            yield ("disconnected",), "is light - strange, and there is no strange quark: add it to `quarks`"
        elif self.disconnected and quarks.get("light", quarks["strange"]).naik_epsilon != (
            epsilon := quarks["strange"].naik_epsilon
        ):
            text = f"{epsilon:g} is not that of light: loops of light - strange have one for both"
            yield ("quarks", "strange", "naik_epsilon"), text
        if self.target:
            yield from self._too_low(self.target)
        if analysis.scale is None and not self.ensemble.name:
            text = (
                "there is no scale, without which nothing is converted: add `scale: {a_fm: ..., error: ...}`"
            )
            yield ("analysis",), f"{text}, or `name` of a public ensemble to `ensemble`"
        if analysis.blind:
            yield from self._blind_faults(analysis.blind.key)

    def _too_low(self, target: HvpTargetSection) -> Iterator[Problem]:
        """Limits of a target that the file exceeds, and loops whose noise is not known."""
        counts, loops = {"walls": self.connected.noise.walls}, self.disconnected
        if loops:
            counts["vectors"], fine = loops.noise.vectors, loops.solves.fine
            if min(loops.noise.vectors, fine.vectors if fine else LARGEST) < LEAST_VECTORS:
                text = f"needs at least {LEAST_VECTORS} noise vectors, and as many fine ones, to begin with"
                yield ("target",), text
        for name, count in counts.items():
            if (most := getattr(target, f"most_{name}")) < count:
                text = f"{most} is less than the {count} {name} of `noise`: raise it"
                yield ("target", f"most_{name}"), text
        least, most = self._least, (self.deflation and self.deflation.vectors) or 0
        wrong = [number for number in target.eigenvectors or () if not least <= number <= most]
        if wrong and (most or not self.deflation):  # auto is refused by itself
            text = f"{wrong[0]} is not among {least:d} to {most}, `deflation.vectors`: take one that is"
            yield ("target", "eigenvectors"), text

    def _current_faults(self) -> Iterator[Problem]:
        """Currents that are not measured, and what the workflows of both parts refuse."""
        currents, analysis = self.connected.currents, self.analysis
        needed = {analysis.current, *(["one_link"] if self.disconnected else [])} - {"conserved"}
        if analysis.current not in currents:
            text = f"is {analysis.current}, which is none of `connected.currents`, {', '.join(currents)}"
            yield ("analysis", "current"), f"{text}: change one of the two"
        elif missing := sorted(needed - analysis.z_v.keys()):
            text = f"has none of {' and '.join(missing)}, without which nothing is added"
            remedy = f"{missing[0]}: {{value: 0.95, error: 0.001}}` or `{missing[0]}: {{at: SLICE}}"
            yield ("analysis", "z_v"), f"{text}: add `{remedy}`"
        for name, z_v in analysis.z_v.items():
            if z_v.at is not None and not {"conserved", name} <= {*currents}:
                text = f"the ratio needs {name} and conserved among `connected.currents`: add them, or state"
                yield ("analysis", "z_v", name, "at"), f"{text} value and error"
        if "light" not in self.quarks:
            return
        for part, whole in self._wholes():
            if whole.solver_is_open:
                text = f"auto is for g2_{part}, whose run measures solvers: name the one that it chose"
                yield (part, "solves", "solver"), text
            for place, text in whole.contradictions():
                if place[0] in ("noise", "solves", "estimator", "currents"):
                    yield (part, *place), text

    def doubts(self) -> Iterator[Problem]:
        """Those of the workflows of both parts, and masses that are not the ensemble's."""
        published = self.ensemble.published
        for name, mass in published.masses.items() if published else ():
            if name in self.quarks and abs(self.quarks[name].mass - mass) > SEA * mass:
                text = f"{self.quarks[name].mass:g} is not near {mass:g}, that of {self.ensemble.name}"
                yield ("quarks", name, "mass"), f"{text}: is it meant?"
        for part, whole in self._wholes():
            for place, text in whole.doubts():
                yield (("quarks", *place[1:]) if place[0] == "masses" else (part, *place)), text

    def _wholes(self) -> Iterator[tuple[str, WorkflowParameters]]:
        """Parameters of the workflows that measure either part."""
        yield "connected", self.of_connected
        if self.disconnected and "strange" in self.quarks:
            yield "disconnected", self.of_disconnected

    def _blind_faults(self, key: str) -> Iterator[Problem]:
        """A key that is lost, or kept where the results are."""
        path, place = Path(key).expanduser(), ("analysis", "blind", "key")
        for folder in (self.store, self.report):
            if path.resolve().is_relative_to(Path(folder).expanduser().resolve()):
                yield place, f"{key!r} lies in {folder!r}, beside what it blinds: keep it elsewhere"
                return
        try:
            Blinding.of_file(path)
        except InputError as error:
            yield place, str(error)

    def problems_with(self, lattice: Lattice, configurations: int) -> Iterator[Problem]:
        """As of all workflows, with incomplete bins; one configuration has no errors of a budget."""
        problems = super().problems_with(lattice, configurations)
        yield from (each for each in problems if each[0] != ("analysis", "jackknife_bin"))
        if configurations == 1:
            yield ("ensemble",), "has one configuration, but errors need at least two"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Windows and slices beyond the lattice, and links that wind around it."""
        wound = list(winding(lattice, "links"))
        if wound:
            yield from wound
            return
        analysis = self.analysis
        for name in analysis.windows:
            try:
                self.total(name).weights(lattice.time_extent)
            except InputError as error:
                yield ("analysis", "windows"), str(error)
        if self.target:
            yield from self._beyond_inputs(self.target.a_mu, lattice)
        half, tail = lattice.time_extent // 2, analysis.tail
        limits: list[tuple[Location, int | None, int]] = [(("last",), analysis.last, half)]
        limits += [(("z_v", name, "at"), each.at, half - 1) for name, each in analysis.z_v.items()]
        if tail:
            last = min(half, analysis.last or half)
            limits += [(("tail", "steps"), tail.steps, last - 2), (("tail", "slice"), tail.slice, last - 1)]
            limits += [(("tail", "disconnected_slice"), tail.disconnected_slice, last - 1)]
            limits += [(("tail", "fit", "last"), tail.fit.last, half)] if tail.fit else []
        for place, number, most in limits:
            if number is not None and number > most:
                of = f"on {lattice}" if most >= half - 2 else f"of a sum to `last`, {analysis.last}"
                yield ("analysis", *place), f"{number} is more than {most}, the most {of}"

    def _beyond_inputs(self, target: AMuTarget, lattice: Lattice) -> Iterator[Problem]:
        """A target that the scale or Z_V alone exceed; the slope by a is that of one vector meson."""
        place, relative = ("target", "a_mu", "relative"), target.relative
        if target.window not in self.analysis.windows:
            have = ", ".join(self.analysis.windows)
            yield ("target", "a_mu", "window"), f"{target.window!r} is none of `analysis.windows`: {have}"
            return
        try:
            total = self.total(target.window)
            n = np.arange(len(weights := total.weights(lattice.time_extent)))
        except InputError:
            return  # said of the window
        meson = np.exp(-RHO * total.scale.a_fm / HBARC * n)
        slope = abs(meson @ total.slopes(lattice.time_extent) / (meson @ weights))
        alone = {"the scale": slope * total.scale.error / total.scale.a_fm}
        z_v = self.analysis.z_v.get(self.analysis.current)
        if z_v and z_v.stated:
            alone["Z_V"] = 2 * z_v.stated.error / z_v.stated.value
        for name, error in alone.items():
            if error > relative:
                text = f"{relative:g} is below what {name} alone leaves, {error:.2g}"
                yield place, f"{text}: take a better value of it, or a larger target"

    def total(self, window: str) -> HvpSum:
        """The sum in a window."""
        section = self.analysis
        muon, middle = Muon(section.muon_gev, section.inverse_alpha), 1.0 if section.whole_middle else 0.5
        return HvpSum(self.scale, section.window(window), muon, middle, section.last)

    @property
    def scale(self) -> Scale:
        """The lattice spacing, of the file or of the published ensemble."""
        if self.analysis.scale:
            return self.analysis.scale.of_stages
        published = self.ensemble.published
        assert published  # checked when it was read
        return published.scale

    @property
    def blinding(self) -> Blinding | None:
        """What blinds all results. Raises InputError where the key is lost."""
        blind = self.analysis.blind
        return Blinding.of_file(Path(blind.key), spread=blind.spread) if blind else None

    @property
    def of_connected(self) -> walls.ConnectedParameters:
        """What the workflow g2_connected would have in its file; light quarks are the first."""
        return walls.ConnectedParameters(
            links=walls.OwnLinksSection(boundary=self.links.boundary),
            quarks={name: self.quarks[name] for name in QUARKS if name in self.quarks},
            analysis=walls.ConnectedAnalysis(),
            **self._of_part(self.connected),
        )

    @property
    def of_disconnected(self) -> loops.G2Parameters:
        """What the workflow g2_disconnected would have in its file."""
        light, boundary = self.quarks["light"], self.links.boundary
        return loops.G2Parameters(
            links=loops.LinksSection(action="hisq", boundary=boundary, naik_epsilon=light.naik_epsilon),
            masses=loops.MassesSection(light=light.mass, strange=self.quarks["strange"].mass),
            **self._of_part(self.disconnected),
        )

    def _of_part(self, section: FileSection | None) -> dict[str, Any]:
        """The keys of a section of one part, and those that all files have."""
        common = ("workflow", "ensemble", "deflation", "store", "report")
        own = {name: value for name, value in section or () if name != "only"}
        return {**{name: getattr(self, name) for name in common}, **own}


def _no_epsilon(ensemble: HvpEnsemble) -> str:
    try:
        known = ensemble.published and ensemble.published.charm_epsilon
    except InputError:
        known = None
    remedy = f"that of {ensemble.name} is {known}" if known is not None else "it is about -0.36 at m = 0.84"
    return f"charm has no naik_epsilon, which shifts its energy by per cents: add it; {remedy}"

"""Schema of a workflow file: its sections, their types and limits, and what must hold between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from stages.ensemble.staggered_operator import ACTIONS
from stages.loops.current_loops import Masses
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.named import POSITIVE
from workflows import (
    NAIK_EPSILON,
    SLOPPY,
    STAGGERED_MASS,
    TOLERANCE,
    AnalysisSection,
    DeflationSection,
    FileSection,
    ParameterFile,
    Problem,
    Seed,
    SloppySection,
    SolverSection,
    Usual,
    WorkflowParameters,
    validated,
    winding,
)
from workflows.g2_disconnected.noise_schema import (
    AlternativeSection,
    EstimatorSection,
    NoiseSection,
)
from workflows.g2_disconnected.target_schema import (
    TargetSection,
    beyond,
    counts_beside_a_target,
    faults,
    with_places_for_counts,
)

PREFIX = re.compile(r"[A-Za-z]\w*")
"""Of an alternative estimator: it begins the names of nodes."""
EXACT_SITES = 6**4
"""Largest lattice for an exact trace: three solves per site."""


class LinksSection(FileSection):
    """The fermion's links."""

    action: Literal["hisq", "asqtad", "naive"]
    """Fermion action: HISQ, asqtad, or naive staggered quarks on thin links."""
    boundary: Literal["periodic", "antiperiodic"]
    """Boundary condition of the quarks in time."""
    naik_epsilon: Annotated[float, NAIK_EPSILON] = 0.0
    """Epsilon of the Naik term of hisq, a correction for heavy quarks."""
    u0: Annotated[
        float | None, Field(gt=0), Usual(0.5, 1.0, "it is the fourth root of the mean plaquette")
    ] = None
    """Tadpole factor, required by asqtad: the fourth root of the ensemble's mean plaquette."""

    def contradictions(self) -> Iterator[Problem]:
        """Options that the action does not take, and those that it needs and that have no default."""
        takes = ACTIONS[self.action].options
        for option in {name: None for action in ACTIONS.values() for name in action.options}:
            value, default = getattr(self, option), type(self).model_fields[option].default
            if option not in takes and value != default:
                yield (option,), f"the {self.action} action takes no `{option}`: leave it out"
            if option in takes and value is None:
                yield ("action",), f"the {self.action} action needs `{option}`: add it to `links`"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """A lattice that long links wind around."""
        if self.action != "naive":
            yield from winding(lattice, "action", self.action, ", or action naive")


Mass = Annotated[float, Field(strict=True), STAGGERED_MASS]


class MassesSection(FileSection):
    """Quark masses m of M = 2 m + D, in lattice units."""

    light: Mass
    """Mass of the light quarks."""
    strange: Mass
    """Mass of the strange quark."""

    @property
    def of_stages(self) -> Masses:
        """Both masses as stages take them."""
        return Masses(self.light, self.strange)

    @field_validator("light", "strange")
    @classmethod
    def _positive(cls, mass: float) -> float:
        if mass <= 0:
            raise ValueError(f"a mass must be positive, got {mass}: the normal operator is 4 m^2 - D^2")
        return mass


class FineSection(FileSection):
    """The few solves that correct the sloppy ones' bias: the first `vectors` noise vectors."""

    tolerance: Annotated[float, TOLERANCE] = Field(ge=1e-14, lt=1)
    """|b - A x| / |b| of the solves that remove the sloppy ones' bias."""
    vectors: int = Field(ge=2)
    """Noise vectors that are solved for again, the first ones."""


class SolvesSection(SolverSection):
    """Solution of the linear systems, `block` right-hand sides at a time."""

    solvers: ClassVar = tuple(POSITIVE)
    lighter: ClassVar = {"block_cgrq": ("batched_cg",)}

    solver: Literal["auto", "block_cgrq", "batched_cg"]
    """The method; auto measures both on the first configuration, in precisions and blocks, and takes the
    cheapest."""
    precision: Literal["double", "double-single", "double-half"]
    """Double throughout, or iterations in single or half with residuals recomputed in double. Half is for
    batched_cg. With auto the coarsest that may be taken: finer ones are measured, too."""
    max_iterations: int = Field(default=MAX_ITERATIONS, ge=1)
    """A solve that has not converged by then fails."""
    block: int = Field(default=16, ge=1, le=64)
    """Right-hand sides that are solved together; with auto wider and narrower blocks are measured, too."""
    sloppy: SloppySection
    """The solves of every noise vector."""
    fine: FineSection | None = None
    """Solves of the first few vectors again, to remove the sloppy bias; default: none."""


class CurrentSection(FileSection):
    """The one-link vector current."""

    links: Literal["thin", "smeared", "fat"]
    """Links of the one-link current: the configuration's own (thin), those of HISQ after its first smearing
    (smeared), or the operator's one-hop links (fat).
    """


class BootstrapSection(FileSection):
    """Resampling of configurations with replacement."""

    samples: Annotated[int, Usual(100, 1_000_000, "errors from fewer are uncertain themselves")] = Field(
        ge=10
    )
    """Number of resampled ensembles."""
    seed: Seed
    """Seed of the resampling."""


class ResampledAnalysis(AnalysisSection):
    """The errors of the ensemble average, by jackknife and, where asked for, by bootstrap."""

    bootstrap: BootstrapSection | None = None
    """Bootstrap errors beside those of the jackknife; default: none."""


class G2Parameters(WorkflowParameters):
    """Parameters of the disconnected vector-current correlator, light - strange."""

    links: LinksSection
    """The fermion action and its links."""
    masses: MassesSection
    """Quark masses m of M = 2 m + D, lattice units."""
    noise: NoiseSection
    """Stochastic sources."""
    deflation: DeflationSection | None = None
    """Lowest eigenvectors of each configuration, for deflation and exact low modes; default: none."""
    estimator: EstimatorSection = EstimatorSection()
    """How loops and their difference are estimated."""
    alternatives: dict[str, AlternativeSection] = Field(default={})
    """Other estimators on the same configurations, by name, for the report to compare."""
    solves: SolvesSection
    """Solution of the linear systems."""
    current: CurrentSection
    """The vector current."""
    analysis: ResampledAnalysis = ResampledAnalysis()
    """Errors of the ensemble average."""
    exact: bool = False
    """Also the exact trace from every point source, to test the estimators: lattices of at most 6^4 sites."""
    target: TargetSection | None = None
    """A stochastic error to reach, instead of numbers of noise vectors."""

    @classmethod
    def read(cls, file: ParameterFile) -> G2Parameters:
        """The checked parameters of a file, with a pilot's numbers of noise vectors where there is a target.

        Raises:
            InputError: every problem of the file, with its line.
        """
        file.refuse(counts_beside_a_target(file))
        parameters = validated(with_places_for_counts(file), cls)
        if target := parameters.target:
            file.refuse(faults(target, parameters.noise.chunk))
            parameters = with_vectors(parameters, target.vectors_of_the_pilot(parameters.noise.chunk))
        parameters.check(file)
        return parameters

    @property
    def vectors_set_noise(self) -> bool:
        """True where low modes are averaged, or a target tries numbers of them."""
        return low_modes_wanted(self) or bool(self.target)

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        solves = self.solves
        if solves.fine and solves.fine.tolerance > solves.sloppy.tolerance:
            yield (
                ("solves", "fine", "tolerance"),
                f"{solves.fine.tolerance:g} must be tighter than the sloppy {solves.sloppy.tolerance:g}",
            )
        yield from self._fine_faults(self.noise)
        if self.estimator.low_modes and not self.deflation:
            yield ("estimator", "low_modes"), "needs eigenvectors: add a section `deflation` with `vectors`"
        for name, changed in alternatives(self):
            if not PREFIX.fullmatch(name):
                yield ("alternatives", name), f"{name!r} is no name: take letters, digits and _"
            for _, problem in chain(self._fine_faults(changed.noise), changed.noise.contradictions()):
                yield ("alternatives", name), problem
            if changed.estimator.low_modes and not self.deflation:
                yield (
                    ("alternatives", name),
                    "`low_modes` needs a section `deflation`: add it, with `vectors`",
                )

    def _fine_faults(self, noise: NoiseSection) -> Iterator[Problem]:
        """Fine noise vectors that are none of the first, or no whole chunks of them."""
        vectors = self.solves.fine.vectors if self.solves.fine else 0
        if vectors > noise.vectors:
            text = f"{vectors} fine vectors, but `noise.vectors` is {noise.vectors}: at most that"
            yield ("solves", "fine", "vectors"), text
        if vectors % noise.chunk and not noise.vectors % noise.chunk:
            yield (
                ("solves", "fine", "vectors"),
                f"{vectors} is no multiple of `noise.chunk`, {noise.chunk}: vectors are solved "
                f"{noise.chunk} at a time, change one of the two",
            )

    def doubts(self) -> Iterator[Problem]:
        """Masses and tolerances that are legal but rarely meant."""
        light, strange, solves = self.masses.light, self.masses.strange, self.solves
        if not solves.fine and TOLERANCE.most < solves.sloppy.tolerance <= SLOPPY.most:
            yield (
                ("solves", "sloppy", "tolerance"),
                f"{solves.sloppy.tolerance:g} leaves a bias, and there are no `fine` solves to remove it",
            )
        if light > strange:
            text = f"{light:g} is heavier than strange, {strange:g}: are the two exchanged?"
            yield ("masses", "light"), text
        if light == strange:
            yield ("masses", "light"), f"is that of strange, {strange:g}: their difference is zero"

    def problems_with(self, lattice: Lattice, configurations: int) -> Iterator[Problem]:
        """Problems with the ensemble: its lattice, its number of configurations."""
        yield from super().problems_with(lattice, configurations)
        if self.target and self.target.stochastic_to_gauge and configurations < 2:
            yield (
                ("target", "stochastic_to_gauge"),
                "one configuration has no gauge noise: take two or more, or an absolute error",
            )

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Problems with the lattice."""
        for name, changed in alternatives(self):
            for _, problem in changed.noise.misfits(lattice):
                yield ("alternatives", name), problem
        if self.target:
            yield from beyond(self.target, self.deflation.count(lattice) if self.deflation else 0)
        if self.exact and lattice.volume > EXACT_SITES:
            yield (
                ("exact",),
                f"an exact trace is for at most {EXACT_SITES} sites; {lattice} needs {3 * lattice.volume} "
                "solves",
            )


def with_vectors(parameters: G2Parameters, counts: Sequence[int]) -> G2Parameters:
    """Parameters with these numbers of sloppy and fine noise vectors, as a target chose them."""
    noise, solves = parameters.noise, parameters.solves
    fine = solves.fine and solves.fine.model_copy(update={"vectors": counts[-1]})
    sections = {
        "noise": noise.model_copy(update={"vectors": counts[0]}),
        "solves": solves.model_copy(update={"fine": fine}),
    }
    return parameters.model_copy(update=sections)


def alternatives(parameters: G2Parameters) -> Iterator[tuple[str, G2Parameters]]:
    """The parameters of each alternative estimator, by its name."""
    for name, alternative in parameters.alternatives.items():
        changed: dict[str, Any] = {
            "noise": alternative.noise(parameters.noise),
            "estimator": alternative.estimator(parameters.estimator),
            "deflation": parameters.deflation if alternative.deflation else None,
            "alternatives": {},
        }
        yield name, parameters.model_copy(update=changed)


def low_modes_wanted(parameters: G2Parameters) -> bool:
    """True if the estimator or an alternative averages low modes."""
    return any(each.estimator.low_modes for _, each in (("", parameters), *alternatives(parameters)))

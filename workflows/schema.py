"""What a workflow file may say: its sections, their types and limits, and what must hold between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline.explain import counted
from pipeline.workflow import LARGEST
from stages.lattice.errors import InputError
from stages.lattice.geometry import Lattice
from stages.noise.dilution import Dilution
from stages.noise.probing import check_probes
from workflows.parameter_file import Location, ParameterFile, Section, validated
from workflows.target_schema import Target, counts_beside_a_target, faults, outside, with_places_for_counts

Extents = Annotated[tuple[int, ...], Field(strict=False, min_length=4, max_length=4)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
EXACT_SITES = 6**4
"""Largest lattice for an exact trace: three solves per site."""


class Heatbath(Section):
    """A quenched ensemble made on the spot: an independent, thermalised chain per configuration."""

    extents: Extents
    beta: float = Field(gt=0)
    configurations: int = Field(ge=2, le=LARGEST)
    sweeps: int = Field(ge=1)
    overrelaxation: int = Field(ge=0)
    seed: Seed

    @field_validator("extents")
    @classmethod
    def _even(cls, extents: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        return Lattice(extents).extents

    @property
    def lattice(self) -> Lattice:
        x, y, z, t = self.extents
        return Lattice((x, y, z, t))


class Ensemble(Section):
    """Where the gauge configurations come from: generated, or files matched by shell patterns."""

    heatbath: Heatbath | None = None
    files: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Ensemble:
        if (self.heatbath is None) == (self.files is None):
            raise ValueError("give either `heatbath` or `files`, and not both")
        return self


class Links(Section):
    """The fermion's links."""

    action: Literal["hisq", "naive"]
    boundary: Literal["periodic", "antiperiodic"]
    naik_epsilon: float = 0.0


Mass = Annotated[float, Field(strict=True)]


class Masses(Section):
    """Quark masses m of M = 2 m + D, in lattice units."""

    light: Mass
    strange: Mass

    @field_validator("light", "strange")
    @classmethod
    def _positive(cls, mass: float) -> float:
        if mass <= 0:
            raise ValueError(f"a mass must be positive, got {mass}: the normal operator is 4 m^2 - D^2")
        return mass


class DilutionSection(Section):
    """Which components of a noise vector are solved separately."""

    color: bool = False
    time: Any = None
    """A number of slices, or "full"; `Dilution` says what is wrong with anything else."""
    displacement: int | None = None

    @model_validator(mode="after")
    def _known(self) -> DilutionSection:
        self.scheme()
        return self

    def options(self) -> dict[str, Any]:
        """What is diluted, without what is not."""
        return {name: value for name, value in self if value is not None and value is not False}

    def scheme(self) -> Dilution:
        """The dilution that this section asks for."""
        return Dilution.parse(self.options())


class Noise(Section):
    """Stochastic sources: their kind, how many, how diluted, and how many are solved together."""

    kind: Literal["z2", "z4", "u1", "gaussian"]
    seed: Seed
    vectors: int
    chunk: int = Field(ge=1)
    dilution: DilutionSection = DilutionSection()
    probes: int = Field(default=1, ge=1)
    """Hadamard vectors that each noise vector is multiplied by; a power of two."""
    probe_chunk: int = Field(default=1, ge=1)
    """Probes solved together, with `chunk` vectors."""

    @field_validator("vectors")
    @classmethod
    def _pairs(cls, vectors: int) -> int:
        if vectors < 2:
            raise ValueError(
                f"got {vectors}, but a disconnected correlator pairs different noise vectors: at least 2"
            )
        if vectors > LARGEST:
            raise ValueError(f"got {vectors}, but a plan has room for at most {LARGEST}")
        return vectors


class Deflation(Section):
    """The lowest eigenvectors of each configuration, computed once for all masses and noise vectors."""

    vectors: int = Field(ge=1)
    block: int = Field(default=8, ge=1, le=32)
    """Of the eigensolver."""
    tolerance: float = Field(default=1e-8, ge=1e-13, le=1e-2)
    """Of residuals, relative to the largest eigenvalue."""
    precision: Literal["double", "single", "half"] = "double"
    """In which the vectors are stored."""


class Estimator(Section):
    """How the difference of the two masses is estimated."""

    difference: Literal["plain", "split_even"] = "plain"


class Sloppy(Section):
    """The solves of all noise vectors."""

    tolerance: float = Field(gt=0, lt=1)


class Fine(Section):
    """The few solves that correct the sloppy ones' bias: the first `vectors` noise vectors."""

    tolerance: float = Field(ge=1e-14, lt=1)
    vectors: int = Field(ge=2)


class Solves(Section):
    """How the linear systems are solved, `block` right-hand sides at a time."""

    solver: Literal["block_cgrq", "batched_cg"]
    precision: Literal["double", "double-single"]
    max_iterations: int = Field(default=20_000, ge=1)
    block: int = Field(default=16, ge=1, le=64)
    sloppy: Sloppy
    fine: Fine | None = None


class Current(Section):
    """The one-link vector current."""

    links: Literal["thin", "smeared", "fat"]


class Bootstrap(Section):
    """Resampling of configurations with replacement."""

    samples: int = Field(ge=10)
    seed: Seed


class Analysis(Section):
    """The errors of the ensemble average."""

    jackknife_bin: int = Field(default=1, ge=1)
    bootstrap: Bootstrap | None = None


class G2Disconnected(Section):
    """Parameters of the disconnected light-strange vector-current correlator."""

    workflow: Literal["g2_disconnected"]
    ensemble: Ensemble
    links: Links
    masses: Masses
    noise: Noise
    deflation: Deflation | None = None
    estimator: Estimator = Estimator()
    solves: Solves
    current: Current
    analysis: Analysis = Analysis()
    exact: bool = False
    target: Target | None = None
    """Instead of `noise.vectors` and `solves.fine.vectors`."""
    store: str
    report: str


def read_g2_disconnected(file: ParameterFile) -> G2Disconnected:
    """The checked parameters of `file`.

    Raises:
        InputError: every problem of the file, with its line.
    """
    refuse(file, counts_beside_a_target(file))
    parameters = validated(with_places_for_counts(file), G2Disconnected)
    if target := parameters.target:
        refuse(file, faults(target, parameters.noise.chunk))
        parameters = with_vectors(parameters, target.vectors_of_the_pilot(parameters.noise.chunk))
    refuse(file, contradictions(parameters))
    return parameters


def with_vectors(parameters: G2Disconnected, counts: Sequence[int]) -> G2Disconnected:
    """The same with these numbers of sloppy and fine noise vectors, as a target chose them."""
    noise, solves = parameters.noise, parameters.solves
    fine = solves.fine and solves.fine.model_copy(update={"vectors": counts[-1]})
    sections = {
        "noise": noise.model_copy(update={"vectors": counts[0]}),
        "solves": solves.model_copy(update={"fine": fine}),
    }
    return parameters.model_copy(update=sections)


def refuse(file: ParameterFile, problems: Iterator[tuple[Location, str]]) -> None:
    """Raises one InputError when there are `problems` (where, what)."""
    named = [f"{file.name(*location)}: {what}" for location, what in problems]
    if named:
        raise file.error(*named)


def contradictions(parameters: G2Disconnected) -> Iterator[tuple[Location, str]]:
    """What no single value shows: sections that do not fit each other."""
    noise, solves = parameters.noise, parameters.solves
    if parameters.links.action == "naive" and parameters.links.naik_epsilon:
        yield ("links", "naik_epsilon"), "the naive action has no Naik term: leave it out"
    if solves.fine and solves.fine.tolerance > solves.sloppy.tolerance:
        yield (
            ("solves", "fine", "tolerance"),
            f"{solves.fine.tolerance:g} must be tighter than the sloppy {solves.sloppy.tolerance:g}",
        )
    if solves.fine and solves.fine.vectors > noise.vectors:
        yield (
            ("solves", "fine", "vectors"),
            f"{solves.fine.vectors} fine vectors, but `noise.vectors` is {noise.vectors}",
        )
    if noise.vectors % noise.chunk:
        yield ("noise", "chunk"), f"{noise.chunk} does not divide the {noise.vectors} noise vectors"
    elif solves.fine and solves.fine.vectors % noise.chunk:
        yield (
            ("solves", "fine", "vectors"),
            f"{solves.fine.vectors} is no multiple of `noise.chunk`, {noise.chunk}: vectors are solved "
            f"{noise.chunk} at a time, change one of the two",
        )
    if noise.probes % noise.probe_chunk:
        yield ("noise", "probe_chunk"), f"{noise.probe_chunk} does not divide the {noise.probes} probes"
    if noise.probes > 1 and noise.dilution.displacement:
        yield (
            ("noise", "probes"),
            "probes separate sites that `dilution.displacement` has separated already: take one of the two",
        )
    if not parameters.report:
        yield ("report",), "is empty: name a folder"
    elif _is_within(Path(parameters.report), Path(parameters.store)):
        yield (
            ("report",),
            f"{parameters.report!r} lies in the store {parameters.store!r}: name another folder",
        )
    heatbath = parameters.ensemble.heatbath
    if heatbath:
        yield from misfits(parameters, heatbath.lattice, heatbath.configurations)


def _is_within(path: Path, folder: Path) -> bool:
    return path.expanduser().resolve().is_relative_to(folder.expanduser().resolve())


def misfits(
    parameters: G2Disconnected, lattice: Lattice, configurations: int
) -> Iterator[tuple[Location, str]]:
    """What does not fit the ensemble: its lattice, its number of configurations."""
    try:
        parameters.noise.dilution.scheme().check(lattice)
    except InputError as error:
        yield ("noise", "dilution"), str(error)
    try:
        check_probes(parameters.noise.probes, lattice)
    except InputError as error:
        yield ("noise", "probes"), str(error)
    if parameters.target:
        yield from outside(parameters.target, lattice)
    deflation, modes = parameters.deflation, 3 * lattice.half_volume
    if deflation and deflation.vectors > modes:
        yield (
            ("deflation", "vectors"),
            f"{deflation.vectors} vectors, but the even sites of a lattice of {lattice} have {modes}: "
            f"at most 3 x half the volume, and far fewer pay",
        )
    if parameters.exact and lattice.volume > EXACT_SITES:
        yield (
            ("exact",),
            f"an exact trace is for at most {EXACT_SITES} sites; {lattice} needs {3 * lattice.volume} solves",
        )
    if configurations < 2 * (width := parameters.analysis.jackknife_bin):
        yield (
            ("analysis", "jackknife_bin"),
            f"{counted(configurations, 'configuration')} in bins of {width} leave fewer than two bins",
        )

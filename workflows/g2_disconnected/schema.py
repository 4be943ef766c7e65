"""What a workflow file may say: its sections, their types and limits, and what must hold between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline.declare.text import counted
from pipeline.planning.workflow import LARGEST
from stages.lqcd.lattice.geometry import Lattice
from workflows.g2_disconnected.noise_schema import (
    Alternative,
    Estimator,
    Noise,
    Seed,
    noise_faults,
    noise_misfits,
)
from workflows.g2_disconnected.target_schema import (
    Target,
    beyond,
    counts_beside_a_target,
    faults,
    outside,
    with_places_for_counts,
)
from workflows.parameter_file import Location, ParameterFile, Section, validated

Extents = Annotated[tuple[int, ...], Field(strict=False, min_length=4, max_length=4)]
NAME = re.compile(r"[A-Za-z]\w*")
"""Of an alternative estimator: it begins the names of nodes."""
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


class Deflation(Section):
    """The lowest eigenvectors of each configuration, computed once for all masses and noise vectors."""

    vectors: int = Field(ge=1)
    block: int = Field(default=8, ge=1, le=32)
    """Of the eigensolver."""
    tolerance: float = Field(default=1e-8, ge=1e-13, le=1e-2)
    """Of residuals, relative to the largest eigenvalue."""
    precision: Literal["double", "single", "half"] = "double"
    """In which the vectors are stored."""


class Sloppy(Section):
    """The solves of all noise vectors."""

    tolerance: float = Field(gt=0, lt=1)


class Fine(Section):
    """The few solves that correct the sloppy ones' bias: the first `vectors` noise vectors."""

    tolerance: float = Field(ge=1e-14, lt=1)
    vectors: int = Field(ge=2)


class Solves(Section):
    """How the linear systems are solved, `block` right-hand sides at a time."""

    solver: Literal["auto", "block_cgrq", "batched_cg"]
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
    alternatives: dict[str, Alternative] = Field(default={})
    """Other estimators on the same configurations, by name, for the report to compare."""
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


def alternatives(parameters: G2Disconnected) -> Iterator[tuple[str, G2Disconnected]]:
    """The parameters of each alternative estimator, by its name."""
    for name, alternative in parameters.alternatives.items():
        changed: dict[str, Any] = {
            "noise": alternative.noise(parameters.noise),
            "estimator": alternative.estimator(parameters.estimator),
            "deflation": parameters.deflation if alternative.deflation else None,
            "alternatives": {},
        }
        yield name, parameters.model_copy(update=changed)


def refuse(file: ParameterFile, problems: Iterator[tuple[Location, str]]) -> None:
    """Raises one InputError when there are `problems` (where, what)."""
    named = [f"{file.name(*location)}: {what}" for location, what in problems]
    if named:
        raise file.error(*named)


def contradictions(parameters: G2Disconnected) -> Iterator[tuple[Location, str]]:
    """What no single value shows: sections that do not fit each other."""
    solves = parameters.solves
    if parameters.links.action == "naive" and parameters.links.naik_epsilon:
        yield ("links", "naik_epsilon"), "the naive action has no Naik term: leave it out"
    if solves.fine and solves.fine.tolerance > solves.sloppy.tolerance:
        yield (
            ("solves", "fine", "tolerance"),
            f"{solves.fine.tolerance:g} must be tighter than the sloppy {solves.sloppy.tolerance:g}",
        )
    fine_vectors = solves.fine.vectors if solves.fine else None
    yield from noise_faults(parameters.noise, fine_vectors)
    if parameters.estimator.low_modes and not parameters.deflation:
        yield ("estimator", "low_modes"), "needs eigenvectors: add a section `deflation` with `vectors`"
    for name, changed in alternatives(parameters):
        if not NAME.fullmatch(name):
            yield ("alternatives", name), f"{name!r} is no name: take letters, digits and _"
        for _, what in noise_faults(changed.noise, fine_vectors):
            yield ("alternatives", name), what
        if changed.estimator.low_modes and not parameters.deflation:
            yield ("alternatives", name), "`low_modes` needs a section `deflation`"
    yield from misplaced_report(parameters.report, parameters.store)
    heatbath = parameters.ensemble.heatbath
    if heatbath:
        yield from misfits(parameters, heatbath.lattice, heatbath.configurations)


def misplaced_report(report: str, store: str) -> Iterator[tuple[Location, str]]:
    """A report that has no folder, or one in the store."""
    if not report:
        yield ("report",), "is empty: name a folder"
    elif _is_within(Path(report), Path(store)):
        yield ("report",), f"{report!r} lies in the store {store!r}: name another folder"


def _is_within(path: Path, folder: Path) -> bool:
    return path.expanduser().resolve().is_relative_to(folder.expanduser().resolve())


def misfits(
    parameters: G2Disconnected, lattice: Lattice, configurations: int
) -> Iterator[tuple[Location, str]]:
    """What does not fit the ensemble: its lattice, its number of configurations."""
    yield from noise_misfits(parameters.noise, lattice)
    for name, changed in alternatives(parameters):
        for _, what in noise_misfits(changed.noise, lattice):
            yield ("alternatives", name), what
    if parameters.target:
        yield from outside(parameters.target, lattice)
        yield from beyond(parameters.target, parameters.deflation.vectors if parameters.deflation else 0)
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
    yield from too_few_bins(configurations, parameters.analysis.jackknife_bin)


def too_few_bins(configurations: int, width: int) -> Iterator[tuple[Location, str]]:
    """An ensemble that has no jackknife error."""
    if configurations < 2 * width:
        yield (
            ("analysis", "jackknife_bin"),
            f"{counted(configurations, 'configuration')} in bins of {width} leave fewer than two bins: take "
            "more configurations or smaller bins",
        )

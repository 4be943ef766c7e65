"""Sections of a parameter file that every workflow has: the ensemble, its errors, where results go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Annotated, Self

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from pipeline import LARGEST, counted
from pipeline.running.clusters.section import ClusterSection
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.lqcd.lattice.geometry import Lattice
from workflows.parameter_file import FileSection, Location, ParameterFile, Problem, validated

THREE_HOPS = 3
"""Of Naik links, which the actions but the naive one have: an extent below is wound around.

On 4 sites three hops forward end where one hop backward does. Two terms then join the same sites by different
paths, none of which winds around: that is the improved operator of this small torus, as MILC has it.
"""


def winding(lattice: Lattice, key: str, action: str = "HISQ", other: str = "") -> Iterator[Problem]:
    """The problem with a lattice that long links wind around, if it is one; other: a further remedy."""
    if min(lattice.extents) < THREE_HOPS:
        yield (
            (key,),
            f"{action} has links of three hops, which wind around an extent of 2 of the lattice {lattice}: "
            f"take at least 4 sites in each direction{other}",
        )


@dataclass(frozen=True)
class Usual:
    """The usual range of a number; a value outside is legal, but rarely meant.

    Given as `Annotated[float, Usual(...)]` at a key of any section.
    """

    least: float
    most: float
    why: str
    """What is odd about values outside, as it is said after them."""


TOLERANCE = Usual(1e-13, 1e-3, "looser solves give wrong propagators, and rounding prevents tighter ones")
"""Tolerance of the solves for results."""
STAGGERED_MASS = Usual(
    1e-5, 1.0, "heavier quarks do not fit on the lattice, and no ensemble has lighter ones"
)
NAIK_EPSILON = Usual(-1.0, 0.5, "it is about -0.7 m^2: 0 for light quarks, -0.36 for charm at m = 0.8")


def unusual(section: FileSection) -> Iterator[Problem]:
    """Numbers of a section outside the usual range that their key declares."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        for usual in (each for each in field.metadata if isinstance(each, Usual)):
            for number in value if isinstance(value, tuple) else () if value is None else (value,):
                if not usual.least <= number <= usual.most:
                    span = f"{usual.least:g} to {usual.most:g}"
                    yield (name,), f"{number:g} is outside the usual {span}: {usual.why}"


Seed = Annotated[int, Field(ge=0, lt=2**63)]
Extents = Annotated[
    tuple[Annotated[int, Field(le=LARGEST)], ...], Field(strict=False, min_length=4, max_length=4)
]
"""x, y, z, t."""
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class HeatbathSection(FileSection):
    """A quenched ensemble made on the spot: an independent, thermalised chain per configuration."""

    extents: Extents
    """Sites along x, y, z and t: four even numbers."""
    beta: Annotated[float, Usual(5.0, 8.0, "quenched ensembles of the Wilson action are in that range")] = (
        Field(gt=0)
    )
    """Coupling beta = 6 / g^2 of the Wilson gauge action."""
    configurations: int = Field(ge=1, le=LARGEST)
    """Number of configurations; raise it later, and only the new ones are computed."""
    sweeps: Annotated[int, Usual(3, 100_000, "a hot start needs some tens to thermalise")] = Field(ge=1)
    """Heat-bath sweeps from a hot start to each configuration."""
    overrelaxation: Annotated[int, Usual(0, 50, "a few are common")] = Field(ge=0)
    """Over-relaxation steps after each heat-bath sweep."""
    seed: Seed
    """Seed of the random numbers; a configuration depends on it and its number only."""

    @field_validator("extents")
    @classmethod
    def _even(cls, extents: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        return Lattice(extents).extents

    @property
    def lattice(self) -> Lattice:
        x, y, z, t = self.extents
        return Lattice((x, y, z, t))

    @property
    def stage(self) -> partial[GaugeLinks]:
        """The stage that makes a configuration."""
        return partial(
            heatbath_configuration,
            extents=self.lattice.extents,
            beta=self.beta,
            seed=self.seed,
            sweeps=self.sweeps,
            overrelaxation=self.overrelaxation,
        )


ONE_OR_MORE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
"""JSON schema of a text or a list of such."""


def label_parts(path: str) -> dict[str, str]:
    """Parts of a file's path that a pattern of labels may name."""
    file = Path(path)
    parent, grandparent = file.parent, file.parent.parent
    return {"name": file.name, "stem": file.stem, "parent": parent.name, "grandparent": grandparent.name}


def checked_parts(pattern: str) -> bool:
    """True if a pattern names parts of a file's path. Raises ValueError for a brace around no such part."""
    known = [f"{{{part}}}" for part in label_parts("")]
    try:
        parts = [part for part in Formatter().parse(pattern) if part[1] is not None]
    except ValueError:
        raise ValueError(
            f"{pattern!r} has a brace without its partner: write such as {{parent}}/{{name}}"
        ) from None
    for _, name, form, conversion in parts:
        if (word := f"{{{name}}}") not in known:
            raise ValueError(f"{word} in {pattern!r} is no part of a file's name: take {', '.join(known)}")
        if form or conversion:
            raise ValueError(
                f"{pattern!r} has more than a part of a file's name between braces: write {word}"
            )
    return bool(parts)


class EnsembleSection(FileSection):
    """Gauge configurations: generated, or files matched by shell patterns; some may be left out."""

    heatbath: HeatbathSection | None = None
    """A quenched ensemble made here, instead of files."""
    files: Annotated[tuple[str, ...], WithJsonSchema(ONE_OR_MORE)] | None = None
    """Shell pattern, or a list of such, of gauge files in any format that `quarkline check` reads."""
    labels: str | None = None
    """Pattern of the labels of files: {name} by default, {stem} is the name without its last ending,
    {parent} and {grandparent} are folders; "{parent}/{name}" where folders have files of the same name."""
    exclude: Texts = ()
    """Labels of configurations that are left out; the files of those are not opened."""
    wrong_headers: Texts = ()
    """Labels of files that are accepted although their header states a wrong plaquette or link trace; their
    checksums must be right."""

    @field_validator("files", mode="before")
    @classmethod
    def _patterns(cls, files: object) -> tuple[str, ...] | None:
        patterns = [files] if isinstance(files, str) else files
        if patterns is None:
            return None
        if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) for p in patterns):
            raise ValueError(f"a pattern in quotes or a list of such is expected, got {files!r}")
        return tuple(patterns)

    @field_validator("labels")
    @classmethod
    def _label_pattern(cls, labels: str | None) -> str | None:
        if labels is not None and not checked_parts(labels):
            known = ", ".join(f"{{{part}}}" for part in label_parts(""))
            raise ValueError(f"{labels!r} would be the label of every file: take parts of its name, {known}")
        return labels

    @model_validator(mode="after")
    def _one_source(self) -> EnsembleSection:
        if (self.heatbath is None) == (self.files is None):
            raise ValueError("give either `heatbath` or `files`, and not both")
        for key in ("wrong_headers", "labels"):
            if self.heatbath and getattr(self, key):
                raise ValueError(f"`{key}` is about files: leave it out beside `heatbath`")
        return self


class AnalysisSection(FileSection):
    """The errors of the ensemble average."""

    jackknife_bin: int = Field(default=1, ge=1)
    """Configurations in a jackknife bin, in the order of their labels."""


class WorkflowParameters(FileSection):
    """Parameters in the file of any workflow.

    Each workflow adds its own sections, and what they must satisfy.
    """

    workflow: str
    """Name of the workflow that the file is for."""
    ensemble: EnsembleSection
    """Gauge configurations: generated, or read from files."""
    analysis: AnalysisSection = AnalysisSection()
    """Errors of the ensemble average."""
    cluster: ClusterSection | None = None
    """Where workers run, unless a command says otherwise; default: processors of this machine."""
    store: str
    """Folder that keeps every finished piece; relative to where the command runs."""
    report: str
    """Folder of the report, its tables and exported files."""

    @classmethod
    def read(cls, file: ParameterFile) -> Self:
        """The checked parameters of a file.

        Raises:
            InputError: every problem of the file, with its line.
        """
        parameters = validated(file, cls)
        parameters.check(file)
        return parameters

    def check(self, file: ParameterFile) -> None:
        """Raise InputError for sections that do not fit each other, or a lattice that is generated."""
        contradictions = self.gathered(lambda section: section.contradictions())
        problems = [*contradictions, *self._open_vectors(), *self._misplaced(), *self._unexpanded()]
        if self.cluster:
            problems += [(("cluster", *location), text) for location, text in self.cluster.problems()]
        if heatbath := self.ensemble.heatbath:
            kept = heatbath.configurations - len(set(self.ensemble.exclude))
            problems += self.problems_with(heatbath.lattice, max(1, kept))
        file.refuse(sorted(problems, key=lambda problem: file.line(problem[0])))

    @property
    def needs_fixed_gauge(self) -> Location | None:
        """Place of a value that needs configurations in a fixed gauge, if there is one."""
        return None

    @property
    def solver_is_open(self) -> bool:
        """True if trials choose the solver, that of a section `solves`."""
        return getattr(getattr(self, "solves", None), "solver", None) == "auto"

    @property
    def vectors_set_noise(self) -> bool:
        """True if not only the time of solves depends on the number of eigenvectors, but the noise, too."""
        return True

    @property
    def in_rounds(self) -> bool:
        """True if what a round finds decides what the next one is, until a `target` is met."""
        return getattr(self, "target", None) is not None

    def problems_with(self, lattice: Lattice, configurations: int) -> Iterator[Problem]:
        """Problems with the ensemble: its lattice, its number of configurations."""
        yield from self.gathered(lambda section: section.misfits(lattice))
        width = self.analysis.jackknife_bin
        if configurations < 2 * width and (configurations, width) != (
            1,
            1,
        ):  # one has no error, which is said
            yield (
                ("analysis", "jackknife_bin"),
                f"{counted(configurations, 'configuration')} in bins of {width} leave fewer than two bins: "
                "take more configurations or smaller bins",
            )

    def _open_vectors(self) -> Iterator[Problem]:
        """A number of eigenvectors that is left to trials, and that they cannot choose."""
        section = getattr(self, "deflation", None)
        text = ""
        if self.vectors_set_noise:
            text = "auto chooses by the time of solves, and the noise depends on the number: write a number"
        elif not self.solver_is_open:
            text = "auto is measured together with solvers: write `solver: auto` in `solves`, or a number"
        if section and not section.vectors and text:
            yield ("deflation", "vectors"), text

    def _misplaced(self) -> Iterator[Problem]:
        """A store or a report that has no folder, or a report in the store."""
        empty = [key for key in ("store", "report") if not getattr(self, key)]
        for key in empty:
            yield (key,), "is empty: name a folder"
        if not empty and _resolved(self.report).is_relative_to(_resolved(self.store)):
            yield ("report",), f"{self.report!r} lies in the store {self.store!r}: name another folder"

    def _unexpanded(self) -> Iterator[Problem]:
        """Folders named by a variable of the shell, which no one expands, or in an unknown home."""
        for key, folder in (("store", self.store), ("report", self.report)):
            if "$" in folder:
                yield (key,), f"{folder!r} has a `$`, and variables are not expanded: write the folder out"
            elif folder.startswith("~") and os.path.expanduser(folder) == folder:
                yield (key,), f"{folder!r} is in the home of nobody known here: write the folder out"


def _resolved(folder: str) -> Path:
    return Path(os.path.expanduser(folder)).resolve()

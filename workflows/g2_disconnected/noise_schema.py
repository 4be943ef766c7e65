"""Sections of a workflow file on noise and estimators, their limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline import LARGEST
from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Dilution, Noise
from stages.lqcd.noise.probing import check_probes
from workflows import FileSection, Problem, Seed


class DilutionSection(FileSection):
    """Components of a noise vector that are solved separately."""

    color: bool = False
    """Whether colours are solved for separately."""
    time: Any = None
    """Time slices that are solved for separately: a number of interlaced sets, or full."""
    displacement: int | None = None
    """d: the d^4 subsets of sites whose coordinates are alike modulo d, 8 even and 8 odd ones for d = 2."""

    @model_validator(mode="after")
    def _known(self) -> DilutionSection:
        self.scheme()
        return self

    def options(self) -> dict[str, Any]:
        """Dilutions by name, without those that are off."""
        return {name: value for name, value in self if value is not None and value is not False}

    def scheme(self) -> Dilution:
        """The dilution that this section asks for."""
        return Dilution.parse(self.options())


class NoiseSection(FileSection):
    """Stochastic sources: their kind, how many, how diluted or probed, and how many are solved together."""

    kind: Literal["z2", "z4", "u1", "gaussian"]
    """Distribution of the noise: +-1; +-1 and +-i; phases; or Gaussian numbers."""
    seed: Seed
    """Seed of the noise, which depends on it, the configuration's label and the vector's number only."""
    vectors: int
    """Noise vectors per configuration; raise it later, and only the new ones are computed."""
    chunk: int = Field(ge=1)
    """Noise vectors that are solved, committed and repeated together."""
    dilution: DilutionSection = DilutionSection()
    """Components of a noise vector that are solved for separately."""
    probes: int = Field(default=1, ge=1)
    """Hadamard vectors that each noise vector is multiplied by; a power of two."""
    probe_chunk: int = Field(default=1, ge=1)
    """Probes solved together, of `chunk` vectors each."""

    @property
    def of_stages(self) -> Noise:
        """The noise as stages take it."""
        return Noise(self.seed, self.kind, self.dilution.options())

    def contradictions(self) -> Iterator[Problem]:
        """Chunks that do not divide what they are of, and components that are separated twice."""
        if self.vectors % self.chunk:
            text = f"{self.chunk} does not divide the {self.vectors} noise vectors: change one of the two"
            yield ("chunk",), text
        if self.probes % self.probe_chunk:
            text = f"{self.probe_chunk} does not divide the {self.probes} probes: change one of the two"
            yield ("probe_chunk",), text
        if self.probes > 1 and self.dilution.displacement:
            yield (
                ("probes",),
                "probes separate sites that `dilution.displacement` has separated already: take one of the "
                "two",
            )

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Dilutions and probes that do not fit the lattice."""
        checks = (("dilution", self.dilution.scheme().check), ("probes", partial(check_probes, self.probes)))
        for key, check in checks:
            try:
                check(lattice)
            except InputError as error:
                yield (key,), str(error)

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


class EstimatorSection(FileSection):
    """Estimators of loops and of their difference."""

    difference: Literal["plain", "split_even"] = "plain"
    """Light minus strange from two loops, or split-even: from one product (arXiv:1903.10447)."""
    low_modes: bool = False
    """The modes of the section `deflation` exactly, noise on what they leave."""


class AlternativeSection(FileSection):
    """Another estimator on the same configurations; what is not given is as in the main sections."""

    vectors: int | None = Field(default=None, ge=4, le=LARGEST)
    """As in `noise`."""
    chunk: int | None = Field(default=None, ge=1)
    """As in `noise`."""
    dilution: DilutionSection | None = None
    """As in `noise`."""
    probes: int | None = Field(default=None, ge=1)
    """As in `noise`."""
    probe_chunk: int | None = Field(default=None, ge=1)
    """As in `noise`."""
    difference: Literal["plain", "split_even"] | None = None
    """As in `estimator`."""
    low_modes: bool | None = None
    """As in `estimator`."""
    deflation: bool = True
    """Whether low modes and deflated solves are used, as in the main sections."""

    def noise(self, main: NoiseSection) -> NoiseSection:
        """The main noise with what is said here."""
        return _updated(main, self)

    def estimator(self, main: EstimatorSection) -> EstimatorSection:
        """The main estimator with what is said here."""
        changed = _updated(main, self)
        return changed if self.deflation else changed.model_copy(update={"low_modes": False})


def _updated(main: Any, alternative: AlternativeSection) -> Any:
    known = type(main).model_fields
    overrides = {name: value for name, value in alternative if value is not None and name in known}
    return main.model_copy(update=overrides)

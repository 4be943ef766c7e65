"""Section of a parameter file on links smeared in space: of a Laplacian, of displacements, of sources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from stages.base.errors import InputError
from stages.ensemble.smeared_links import SmearedLinks, check_weights, smeared_links
from workflows.parameter_file import FileSection, Problem
from workflows.shared.sections import Usual

STABLE = {"stout": 1 / 6, "ape": 2 / 3}
"""The largest weight in space that damps all waves: those of momentum p, p^2 up to 12, by 1 - rho p^2, or by
1 - alpha p^2 / 4 and the share of the projection."""


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


class LinkSmearingSection(FileSection):
    """Smearing of links in space; those in time are neither smeared nor used."""

    kind: Literal["stout", "ape", "hyp"]
    """Stout with `rho`, APE with `alpha`, or HYP with two `alpha`."""
    steps: Annotated[int, Usual(0, 100, "so many leave little of the gauge field")] = Field(ge=0)
    """How often the links are smeared."""
    rho: Annotated[float, Field(ge=0)] | None = None
    """Weight of stout smearing."""
    alpha: float | Annotated[tuple[float, ...], Field(strict=False, min_length=2, max_length=2)] | None = None
    """Weight of APE smearing, or [alpha2, alpha3] of HYP smearing."""

    @field_validator("alpha", mode="before")
    @classmethod
    def _numbers(cls, alpha: object) -> object:
        values: list[object] = alpha if isinstance(alpha, list) and len(alpha) == 2 else [alpha]
        if alpha is not None and not all(_is_weight(value) for value in values):
            raise ValueError(
                f"a number of at least 0 is expected, or two of hyp smearing, [alpha2, alpha3], got {alpha!r}"
            )
        return alpha

    @model_validator(mode="after")
    def _weights(self) -> LinkSmearingSection:
        try:
            check_weights(self.kind, rho=self.rho, alpha=self.alpha)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def stage(self) -> partial[SmearedLinks]:
        """The stage that smears."""
        return partial(smeared_links, kind=self.kind, steps=self.steps, rho=self.rho, alpha=self.alpha)

    def doubts(self) -> Iterator[Problem]:
        """A weight that roughens."""
        name, weight = ("rho", self.rho) if self.kind == "stout" else ("alpha", self.alpha)
        weights = weight if isinstance(weight, tuple) else (weight or 0.0,)
        if any(weights) != bool(self.steps):
            yield (), f"{self.steps} steps of {name} = {weight} smear nothing: is that meant?"
        if self.kind == "hyp" and max(weights) > 1:
            yield (
                (),
                f"alpha = {list(weights)} gives the link itself a negative weight: take at most 1 each",
            )
        if isinstance(weight, float) and weight > STABLE.get(self.kind, weight):
            yield (
                (),
                f"{name} = {weight} amplifies short waves: take at most {STABLE[self.kind]:.4g}",
            )

"""The `target` section: an error instead of numbers of noise vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline import LARGEST
from stages.loops.noise_allocation import ErrorTarget
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from stages.lqcd.lattice.geometry import Lattice
from workflows import FileSection, Location, ParameterFile, Problem, Usual

PILOT = 8
"""Noise vectors of a pilot, unless the file says how many."""


class TargetSection(FileSection):
    """A stochastic error at fixed gauge field that noise vectors are added for, `most_vectors` at most.

    One of: `loops`, the error of one spatial J_i(t), and `correlator`, the error of C(t) for t in `window`,
    both of one configuration, root mean square over configurations; `stochastic_to_gauge`, the error of C(t)
    as a fraction of its gauge noise, root mean squares over the window.
    """

    loops: float | None = Field(default=None, gt=0)
    """Error of one spatial J_i(t) of one configuration."""
    correlator: float | None = Field(default=None, gt=0)
    """Error of C(t) of one configuration, for t in `window`."""
    stochastic_to_gauge: Annotated[
        float | None, Usual(0.01, 1.0, "above 1 noise dominates, below 0.1 it does not matter")
    ] = Field(default=None, gt=0)
    """Error of C(t) as a fraction of its gauge noise, over `window`."""
    window: tuple[int, ...] | None = Field(default=None, strict=False, min_length=2, max_length=2)
    """First and last t; default for a ratio: 1 to T/2."""
    flavour: Literal["light", "strange", "light - strange"] = "light - strange"
    """The loops or correlator that the error is of."""
    eigenvectors: tuple[int, ...] | None = Field(default=None, strict=False, min_length=1)
    """Numbers of eigenvectors to try beside all of them in the pilot; the cheapest is taken."""
    pilot: int | None = Field(default=None, ge=LEAST_VECTORS)
    """Noise vectors of the first round, from which the total is predicted; default: 8, or a chunk."""
    most_vectors: int = Field(default=1024, ge=LEAST_VECTORS, le=LARGEST)
    """Noise vectors per configuration that are never exceeded."""

    @model_validator(mode="after")
    def _one_target(self) -> TargetSection:
        targets = [name for name in ("loops", "correlator", "stochastic_to_gauge") if getattr(self, name)]
        if len(targets) != 1:
            names = " and ".join(targets) or "none"
            raise ValueError(f"give one of `loops`, `correlator` and `stochastic_to_gauge`, found {names}")
        if self.loops and self.window:
            raise ValueError("`window` is for a correlator; the error of loops is that of every t")
        if self.correlator and not self.window:
            raise ValueError("`correlator` needs a `window`, the first and last t, such as [2, 8]")
        if self.window and not 0 <= self.window[0] <= self.window[1]:
            raise ValueError(f"`window` is the first and the last t, got {list(self.window)}")
        return self

    def on(self, lattice: Lattice) -> ErrorTarget:
        """The target as stages take it."""
        first, last = self.window or (1, max(1, lattice.time_extent // 2))
        error = self.loops or self.correlator
        window, ratio = (first, last), self.stochastic_to_gauge
        return ErrorTarget("loops" if self.loops else "correlator", self.flavour, window, error, ratio)

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """A window that the lattice does not have."""
        if self.window and self.window[1] >= lattice.time_extent:
            yield (
                ("window",),
                f"t = {self.window[1]} is not on {lattice}, whose times are 0 to {lattice.time_extent - 1}",
            )

    def vectors_of_the_pilot(self, chunk: int) -> tuple[int, int]:
        """Sloppy and fine, in whole chunks."""
        return self.pilot or _rounded_up(PILOT, chunk), _rounded_up(LEAST_VECTORS, chunk)


def _rounded_up(number: int, chunk: int) -> int:
    return -(-number // chunk) * chunk


def counts_beside_a_target(file: ParameterFile) -> Iterator[Problem]:
    """Numbers of noise vectors in a file whose target chooses them."""
    if file.values.get("target") is None:
        return
    for section in (("noise",), ("solves", "fine")):
        if "vectors" in _section(file, section):
            yield (
                (*section, "vectors"),
                "a `target` chooses the number of noise vectors: leave out one of the two",
            )


def with_places_for_counts(file: ParameterFile) -> ParameterFile:
    """A target's file with numbers that the schema takes, which the target's own replace afterwards."""
    if file.values.get("target") is None:
        return file
    values = dict(file.values)
    if isinstance(values.get("noise"), dict):
        values["noise"] = {**values["noise"], "vectors": LEAST_VECTORS}
    solves = values.get("solves")
    if isinstance(solves, dict) and isinstance(solves.get("fine"), dict):
        values["solves"] = {**solves, "fine": {**solves["fine"], "vectors": LEAST_VECTORS}}
    return replace(file, values=values)


def _section(file: ParameterFile, location: Location) -> dict[str, object]:
    values: object = file.values
    for name in location:
        values = values.get(str(name)) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def faults(target: TargetSection, chunk: int) -> Iterator[Problem]:
    """Problems with the number of noise vectors that are solved together."""
    if target.pilot and target.pilot % chunk:
        text = f"{target.pilot} is no multiple of `noise.chunk`, {chunk}: change one of the two"
        yield ("target", "pilot"), text
    pilot, _ = target.vectors_of_the_pilot(chunk)
    if target.most_vectors < pilot:
        text = f"{target.most_vectors} are fewer than the pilot's {pilot}: raise it, or lower `pilot`"
        yield ("target", "most_vectors"), text


def beyond(target: TargetSection, vectors: int) -> Iterator[Problem]:
    """Numbers of eigenvectors that a space of so many `vectors` does not have."""
    for count in target.eigenvectors or ():
        if not 1 <= count <= vectors:
            yield (
                ("target", "eigenvectors"),
                f"{count}, but `deflation.vectors` is {vectors}: at least 1, and no more than there are",
            )

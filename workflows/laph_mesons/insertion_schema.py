"""What a file of `laph_mesons` says of current insertions: the section, its limits, and what must fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, field_validator

from quarkline.errors import InputError
from stages.lqcd.dirac.displacement import steps_of
from stages.lqcd.lattice.geometry import Lattice
from workflows.mesons.schema import Times, Triples
from workflows.parameter_file import Location, Section

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class InsertionSection(Section):
    """Currents between a source and a sink of distillation, always of all sixteen Dirac matrices."""

    separations: Times
    """Slices from source to sink."""
    momenta: Triples = ((0, 0, 0),)
    """Of the current, in units of 2 pi / L."""
    displacements: Words = ("",)
    """Words of steps such as +x-y; "" is none."""

    @field_validator("displacements")
    @classmethod
    def _words(cls, displacements: tuple[str, ...]) -> tuple[str, ...]:
        for word in displacements:
            try:
                steps_of(word)
            except InputError as error:
                raise ValueError(str(error)) from None
        return displacements


def insertion_faults(section: InsertionSection, noise: bool) -> Iterator[tuple[Location, str]]:
    """What does not fit within `insertions`, or the sources; noise: whether these are of stochastic LapH."""
    for name, values in section:
        if len(set(values)) < len(values):
            yield ("insertions", name), "names one twice"
    if noise:
        yield (
            ("insertions",),
            "need a source for every eigenvector and spin: leave out either `insertions` or `noise`",
        )


def insertion_misfits(section: InsertionSection, lattice: Lattice) -> Iterator[tuple[Location, str]]:
    """What does not fit the lattice."""
    for separation in section.separations:
        if not 1 <= separation < lattice.time_extent:
            yield ("insertions", "separations"), f"{separation} is none of 1 to {lattice.time_extent - 1}"

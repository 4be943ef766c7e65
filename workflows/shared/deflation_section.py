"""Section of a parameter file on the lowest eigenvectors of staggered quarks, for solves and low modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import isqrt
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from stages.loops.deflation_space import DeflationSpace, EigenSearch, deflation_space
from stages.lqcd.eigen.stored_vectors import searched_in_single
from stages.lqcd.lattice.geometry import Lattice
from workflows.parameter_file import FileSection, Problem
from workflows.shared.variants import Parameters, after, changed, less

COARSE_VECTORS = 1e-4
"""Tolerance of eigenvectors above which deflation loses its gain first (`docs/eigenvectors.md`)."""
PARTS = (8, 4, 2, 1)
"""Of `most` vectors solvers are measured with these parts; `most` is a multiple of the first."""
MOST, MOST_BYTES = 1024, 40e9
"""With auto at most so many vectors are searched, and the search holds at most so many bytes of them."""


def _auto(value: object) -> object:
    """None for auto, for which there is no number yet."""
    if value is None or (isinstance(value, str) and value != "auto" and value.isalpha()):
        raise ValueError(f"{value or 'null'} is no number of eigenvectors: write a whole number, or auto")
    return None if value == "auto" else value


class DeflationSection(FileSection):
    """The lowest eigenvectors of each configuration, computed once for all masses and sources."""

    vectors: Annotated[
        int | None,
        Field(ge=1),
        BeforeValidator(_auto),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
    ]
    """Eigenvectors of the normal operator on even sites; partners on odd sites follow from them. With auto,
    beside `solver: auto`, solvers are measured with `most` vectors, a half, a quarter and an eighth."""
    most: int | None = Field(default=None, ge=1)
    """With `vectors: auto`, the most that are taken; default: by the lattice, at most 1024."""
    block: int = Field(default=8, ge=1, le=32)
    """Vectors that the eigensolver works on at a time."""
    tolerance: float = Field(default=1e-8, ge=1e-13, le=1e-2)
    """Residual tolerance of the eigenvectors, relative to the largest eigenvalue."""
    precision: Literal["double", "single", "half"] = "double"
    """Precision in which the vectors are stored."""

    def count(self, lattice: Lattice) -> int:
        """Vectors that are searched; with auto the most that are taken.

        By default that is 1.5 sqrt(volume), and less where the search would take more than `MOST_BYTES`.
        """
        if named := self.vectors or self.most:
            return named
        itemsize = 8 if searched_in_single(self.precision, self.tolerance) else 16
        room = MOST_BYTES / (2 * 3 * lattice.half_volume * itemsize)
        return max(PARTS[0], int(min(MOST, 1.5 * isqrt(lattice.volume), room)) // PARTS[0] * PARTS[0])

    def chosen(self, vectors: int) -> DeflationSection:
        """The section with the number that auto chose; one that names a number is as it is."""
        return self if self.vectors else self.model_copy(update={"vectors": vectors, "most": None})

    @property
    def tried_parts(self) -> Sequence[int]:
        """Parts of the vectors that solvers are measured with, see `Candidate.deflated`."""
        return (1,) if self.vectors else PARTS

    def space(self, lattice: Lattice) -> partial[DeflationSpace]:
        """The stage that computes the eigenvectors."""
        return partial(
            deflation_space,
            vectors=self.count(lattice),
            tolerance=self.tolerance,
            precision=self.precision,
            search=EigenSearch(self.block),
        )

    def doubts(self) -> Iterator[Problem]:
        """A tolerance that leaves little of the gain."""
        if self.tolerance > COARSE_VECTORS:
            yield (
                ("tolerance",),
                f"{self.tolerance:g} leaves vectors that solves on odd sites may gain nothing "
                f"from: take at most {COARSE_VECTORS:g}; the default is 1e-8",
            )

    def contradictions(self) -> Iterator[Problem]:
        """A limit of a number that is given."""
        if self.vectors and self.most:
            yield ("most",), f"{self.most} is for `vectors: auto`, not for {self.vectors}: leave it out"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """More vectors than there are."""
        modes = 3 * lattice.half_volume
        if (count := self.count(lattice)) > modes:
            yield (
                ("vectors" if self.vectors else "most",),
                f"{count} vectors, but the even sites of a lattice of {lattice} have "
                f"{modes}: at most 3 x half the volume, and far fewer pay",
            )


def deflation_variants(
    parameters: Parameters, section: DeflationSection | None, needed: bool = False
) -> Iterator[tuple[str, Parameters]]:
    """Parameters without their section, unless it is needed; or with one, where there is none."""
    if section is None:
        yield "deflation.vectors = 64", changed(parameters, "deflation", DeflationSection(vectors=64))
    elif not needed:
        yield "no deflation", changed(parameters, "deflation", None)


def deflation_economies(
    section: DeflationSection | None, lattice: Lattice, needed: bool = False
) -> dict[str, Sequence[Any]]:
    """Other values of the section's keys that take less memory, and none of it unless it is needed."""
    if not section:
        return {}
    return {
        "deflation.precision": after(section.precision, ("double", "single", "half")),
        "deflation.block": less(section.block),
        f"deflation.{'vectors' if section.vectors else 'most'}": less(section.count(lattice)),
        "deflation": () if needed else (None,),
    }

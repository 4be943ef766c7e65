"""Section of a parameter file on the lowest eigenvectors of staggered quarks, for solves and low modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field

from stages.loops.deflation_space import DeflationSpace, EigenSearch, deflation_space
from stages.lqcd.lattice.geometry import Lattice
from workflows.parameter_file import FileSection, Problem
from workflows.shared.variants import Parameters, after, changed, less

COARSE_VECTORS = 1e-4
"""Tolerance of eigenvectors above which deflation loses its gain first (`docs/eigenvectors.md`)."""


class DeflationSection(FileSection):
    """The lowest eigenvectors of each configuration, computed once for all masses and sources."""

    vectors: int = Field(ge=1)
    """Eigenvectors of the normal operator on even sites; partners on odd sites follow from them."""
    block: int = Field(default=8, ge=1, le=32)
    """Vectors that the eigensolver works on at a time."""
    tolerance: float = Field(default=1e-8, ge=1e-13, le=1e-2)
    """Residual tolerance of the eigenvectors, relative to the largest eigenvalue."""
    precision: Literal["double", "single", "half"] = "double"
    """Precision in which the vectors are stored."""

    @property
    def space(self) -> partial[DeflationSpace]:
        """The stage that computes the eigenvectors."""
        return partial(
            deflation_space,
            vectors=self.vectors,
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

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """More vectors than there are."""
        modes = 3 * lattice.half_volume
        if self.vectors > modes:
            yield (
                ("vectors",),
                f"{self.vectors} vectors, but the even sites of a lattice of {lattice} have "
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


def deflation_economies(section: DeflationSection | None, needed: bool = False) -> dict[str, Sequence[Any]]:
    """Other values of the section's keys that take less memory, and none of it unless it is needed."""
    if not section:
        return {}
    return {
        "deflation.precision": after(section.precision, ("double", "single", "half")),
        "deflation.block": less(section.block),
        "deflation.vectors": less(section.vectors),
        "deflation": () if needed else (None,),
    }

"""Sections on sources of quarks, and lists of times, places, momenta and names that any section may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, Field

from pipeline import LARGEST
from pipeline.declare.coordinates import sorted_unique
from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place
from workflows.parameter_file import FileSection, Problem
from workflows.shared.sections import Seed

LARGEST_MOMENTUM = 1_000_000
"""Of a momentum's numbers, by size: plane waves of larger ones have lost digits."""

Items = TypeVar("Items", bound=tuple[object, ...])


def distinct(values: Items) -> Items:
    """The values as they are. Raises ValueError where one stands among them twice."""
    seen: set[object] = set()
    for value in values:
        if value in seen:
            shown = list(value) if isinstance(value, tuple) else value
            raise ValueError(f"names {shown} twice: leave one out")
        seen.add(value)
    return values


Number = Annotated[int, Field(ge=-LARGEST_MOMENTUM, le=LARGEST_MOMENTUM)]
if TYPE_CHECKING:
    Triple = tuple[int, int, int]
else:
    Triple = Annotated[tuple[Number, ...], Field(strict=False, min_length=3, max_length=3)]
Times = Annotated[tuple[int, ...], Field(strict=False, min_length=1), AfterValidator(distinct)]
Triples = Annotated[tuple[Triple, ...], Field(strict=False, min_length=1), AfterValidator(distinct)]
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1), AfterValidator(distinct)]


def aliases(momenta: Iterable[Sequence[int]], lattice: Lattice) -> Iterator[Problem]:
    """Momenta of a section that are another one by their plane wave on the lattice."""
    for momentum in momenta:
        for name, number, sites in zip("xyz", momentum, lattice.extents[:3], strict=True):
            if abs(number) > (most := sites // 2):
                same = (number + most) % sites - most
                yield (
                    ("momenta",),
                    f"{number} along {name} of {list(momentum)} is equivalent to {same} on {sites} sites: "
                    f"take numbers from {-most} to {most}",
                )


def first_chunk(labels: Sequence[str], size: int) -> list[str]:
    """Sources that are solved for first, so many in a chunk."""
    return [str(label) for label in sorted_unique("source", labels)[:size]]


class WallNoiseSection(FileSection):
    """The noise of walls."""

    seed: Seed
    """Seed of the noise."""
    vectors: int = Field(default=1, ge=1, le=LARGEST)
    """Noise vectors per time."""


class QuarkSourceSection(FileSection):
    """Sources of quarks."""

    needs: ClassVar[Mapping[str, set[str]]]
    """Keys that each kind must have."""
    may_have: ClassVar[Mapping[str, set[str]]]
    """Keys that a kind may have besides."""
    at_rest: ClassVar[tuple[str, ...]]
    """Kinds that project to zero momentum."""

    kind: str
    """Form of the sources."""
    times: Times | None = None
    """Time slices of the sources."""
    points: Triples | None = None
    """Places of points, [x, y, z]; default: the origin."""
    noise: WallNoiseSection | None = None
    """Noise of walls."""
    chunk: int = Field(default=1, ge=1)
    """Sources that are solved for, committed and repeated together."""

    def places(self) -> list[SourcePlace]:
        """Places of all sources but files."""
        times, keys = self.times or (), self.needs[self.kind] | self.may_have.get(self.kind, set())
        if "points" in keys:
            return [SourcePlace(time, point) for time in times for point in self.points or ((0, 0, 0),)]
        if "noise" in keys:
            vectors = self.noise.vectors if self.noise else 1
            return [SourcePlace(time, None, number) for time in times for number in range(vectors)]
        return [SourcePlace(time) for time in times]

    def contradictions(self) -> Iterator[Problem]:
        """Keys that the kind needs, and keys that it does not take."""
        kind, keys = self.kind, {key for key, value in self if value is not None} - {"kind", "chunk"}
        for key in sorted(self.needs[kind] - keys):
            yield (), f"sources of kind {kind} need `{key}`"
        for key in sorted(keys - self.needs[kind] - self.may_have.get(kind, set())):
            yield (key,), f"is not valid for sources of kind {kind}: remove it"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Places that are not on the lattice."""
        for place in self.places():
            try:
                check_place(lattice, place)
            except InputError as error:
                yield ("points" if 0 <= place.time < lattice.time_extent else "times",), str(error)

    def noisy(self, momenta: Iterable[Sequence[int]]) -> Iterator[Problem]:
        """The problem with momenta of mesons from sources that project to zero momentum."""
        moving = [list(momentum) for momentum in momenta if any(momentum)]
        if self.kind in self.at_rest and moving:
            yield (
                ("mesons", "momenta"),
                f"a {self.kind} source projects to zero momentum, and {moving[0]} would be noise only: "
                "leave it out",
            )

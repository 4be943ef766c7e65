"""Coordinates of chunks: where a stage runs, and how a dimension is cut into blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pipeline.declare.text import literal
from stages.base.errors import InputError, suggestion

if TYPE_CHECKING:
    import numpy as np

Coordinate = str | int
Coordinates = dict[str, tuple[Coordinate, ...]]
Listener = Callable[[dict[str, Any]], None]

Result = TypeVar("Result", covariant=True)


class Checkpoint(Protocol):
    """Arrays of a long computation, kept so that it goes on from them after it was killed."""

    def load(self) -> dict[str, np.ndarray] | None:
        """The state that was saved last, None if there is none."""

    def save(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Replace what was saved by the arrays that `state` gives, durably and as a whole, if it is time."""


Again = Callable[[str], Any]
"""Inputs of a chunk by name, made once more: on the host, from what is stored, of nothing that was kept."""


class At(dict[str, tuple[Coordinate, ...]]):
    """The coordinates of one chunk, and the services of the run that computes it.

    `At(config="a", noise=(0, 1))` works bare, in a notebook or a test: statistics are then collected in
    `at.statistics` and progress reports in `at.reports`, and `at.checkpoint` is None, unless one is given,
    such as `FolderCheckpoint(Path("scratch"))`. In a run, a chunk that is committed has one.

    `at.again` is None unless the chunk is one of those that are repeated in part: the stage then computes
    some of its result a second time, of inputs from `at.again("name")` and by other code, raises
    WrongResultError where the two differ, and records as `repeated` what it did.
    """

    def __init__(
        self,
        coordinates: Mapping[str, Coordinate | Iterable[Coordinate]] | None = None,
        /,
        *,
        backend: str = "cpu",
        listener: Listener | None = None,
        checkpoint: Checkpoint | None = None,
        again: Again | None = None,
        **named: Coordinate | Iterable[Coordinate],
    ) -> None:
        super().__init__({dim: as_tuple(value) for dim, value in {**(coordinates or {}), **named}.items()})
        self.backend = backend
        self.checkpoint = checkpoint
        self.again = again
        self.statistics: dict[str, Any] = {}
        self.reports: list[dict[str, Any]] = []
        self._listener = listener or self.reports.append

    def __missing__(self, dim: str) -> tuple[Coordinate, ...]:
        raise InputError(f"no dimension {dim!r} here{suggestion(dim, self)}")

    def __repr__(self) -> str:
        return f"At({describe(self)})"

    def one(self, dim: str) -> Coordinate:
        """The coordinate along `dim` of a chunk that has exactly one there."""
        values = self[dim]
        if len(values) != 1:
            raise InputError(f"this chunk has {len(values)} coordinates along {dim!r}, exactly one was asked")
        return values[0]

    def record(self, **statistics: object) -> None:
        """Keep JSON-able statistics (iterations, residuals, flops ...) with the chunk that is computed."""
        self.statistics.update(statistics)

    def progress(self, done: float, total: float, **values: object) -> None:
        """Report that `done` of `total` units of this chunk are finished, with any values worth showing."""
        self._listener({"done": done, "total": total, **values})


class Chunks(Protocol[Result]):
    """An input that a stage reduces over: (coordinates, result) pairs sorted by coordinate.

    Loads lazily, one result at a time; may be iterated again. A list of pairs serves in a test.
    """

    def __iter__(self) -> Iterator[tuple[At, Result]]: ...

    def __len__(self) -> int: ...


def as_tuple(value: Coordinate | Iterable[Coordinate]) -> tuple[Coordinate, ...]:
    """One coordinate or many as a tuple, each a plain str or int."""
    values = (value,) if isinstance(value, (str, int)) else tuple(value)
    for item in values:
        if isinstance(item, bool) or not isinstance(item, (str, int)):
            raise InputError(f"a coordinate must be a str or an int, got {item!r} ({type(item).__name__})")
    return values


def natural_order(coordinate: Coordinate) -> tuple[Any, ...]:
    """Sort key: numbers inside labels count as numbers, so that `conf.9` comes before `conf.10`."""
    if isinstance(coordinate, int):
        return (0, coordinate)
    parts = re.split(r"(\d+)", coordinate)
    numbered = ((part, 0) if k % 2 == 0 else ("", int(part[:4000])) for k, part in enumerate(parts))
    return (1, *numbered, coordinate)  # Python reads no number of more digits than 4300


def sorted_unique(dim: str, values: Iterable[Coordinate]) -> tuple[Coordinate, ...]:
    """The coordinates of a dimension in natural order; refuses duplicates and an empty dimension."""
    coordinates = as_tuple(values)
    plain = all(isinstance(value, int) for value in coordinates)
    ordered = tuple(sorted(coordinates, key=None if plain else natural_order))  # type: ignore[type-var]
    repeated = [a for a, b in pairwise(ordered) if a == b]
    if repeated:
        raise InputError(f"coordinate {repeated[0]!r} is listed twice along dimension {dim!r}")
    if not ordered:
        raise InputError(f"dimension {dim!r} has no coordinates")
    return ordered


def blocks(values: Sequence[Coordinate], size: int) -> list[tuple[Coordinate, ...]]:
    """Cut sorted coordinates into chunks of at most `size`.

    Integers fall into the fixed blocks [k size, (k+1) size), so that adding coordinates at either end moves
    no border; labels are cut by position.
    """
    grouped: dict[int, list[Coordinate]] = {}
    for position, value in enumerate(values):
        grouped.setdefault((value if isinstance(value, int) else position) // size, []).append(value)
    return [tuple(block) for block in grouped.values()]


def describe(coordinates: Mapping[str, Sequence[Coordinate]]) -> str:
    """Coordinates for people: `config=a noise=0..3`."""
    return " ".join(f"{dim}={describe_values(values)}" for dim, values in coordinates.items())


def describe_values(values: Sequence[Coordinate]) -> str:
    """Coordinates along one dimension for people: `a`, `0..3` or `0,2,5`."""
    if len(values) > 2 and all(isinstance(v, int) for v in values):
        first, last = int(values[0]), int(values[-1])
        if last - first == len(values) - 1:
            return f"{first}..{last}"
    return ",".join(literal(str(value)) for value in values)

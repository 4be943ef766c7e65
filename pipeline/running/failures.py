"""Failures of chunks in few lines: one damaged file, or a solver that misses its tolerance, fails many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.declare.coordinates import Coordinate, Coordinates, describe, describe_values
from pipeline.declare.text import counted

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)", re.IGNORECASE)
"""A number that is no part of a name."""

NAMED = 6
"""Coordinates that a line names of many."""


@dataclass(frozen=True)
class Failure:
    """A chunk whose computation failed."""

    node: str
    coordinates: Coordinates
    error: str

    def __str__(self) -> str:
        return f"{self.node} {describe(self.coordinates)}: {self.error}".replace(" :", ":")


@dataclass
class FailedChunks:
    """Failed chunks of one node: their number, and the coordinates met along each dimension."""

    chunks: int = 0
    met: dict[str, dict[Coordinate, None]] = field(default_factory=dict)

    def add(self, coordinates: Mapping[str, Iterable[Coordinate]]) -> None:
        """Count another chunk."""
        self.chunks += 1
        for dim, values in coordinates.items():
            self.met.setdefault(dim, {}).update(dict.fromkeys(values))

    def named(self, node: str) -> str:
        """`loops config=a,b noise=0..3 (3 chunks)`: where the chunks lie, and their number."""
        parts = [f"{dim}={_listed(list(values))}" for dim, values in self.met.items()]
        number = f" ({counted(self.chunks, 'chunk')})" if self.chunks > 1 else ""
        return " ".join([node, *parts]) + number


@dataclass
class FailureGroup:
    """Failures whose errors differ in numbers at most; error: the first."""

    error: str
    alike: bool = True
    """Whether all errors are the first one."""
    shares: dict[str, FailedChunks] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        """Number of them."""
        return sum(share.chunks for share in self.shares.values())

    def lines(self) -> Iterator[str]:
        """A line for people, and one for each node where there are several."""
        error = self.error if self.alike else f"{self.error} (other chunks: other numbers)"
        if len(self.shares) == 1:
            ((node, share),) = self.shares.items()
            yield f"failed: {share.named(node)}: {error}"
        else:
            yield f"failed: {counted(self.chunks, 'chunk')}: {error}"
            yield from (f"  {share.named(node)}" for node, share in self.shares.items())


@dataclass
class Failures:
    """All failures of a run, by likeness of their errors."""

    groups: dict[str, FailureGroup] = field(default_factory=dict)

    @classmethod
    def of(cls, failures: Iterable[Failure]) -> Failures:
        """All of these."""
        gathered = cls()
        for failure in failures:
            gathered.add(failure)
        return gathered

    def add(self, failure: Failure) -> None:
        """Take a failed chunk into account."""
        error = failure.error
        group = self.groups.setdefault(_kind(error), FailureGroup(error))
        group.alike = group.alike and error == group.error
        group.shares.setdefault(failure.node, FailedChunks()).add(failure.coordinates)

    def like(self, error: str) -> int:
        """Number of failed chunks whose errors differ from this one in numbers at most."""
        return self.groups[_kind(error)].chunks

    def lines(self) -> list[str]:
        """Lines for people, one error after the other."""
        return [line for group in self.groups.values() for line in group.lines()]


def _kind(error: str) -> str:
    return NUMBER.sub("#", error)


def _listed(values: list[Coordinate]) -> str:
    if all(isinstance(value, int) for value in values):
        return describe_values(sorted(values))  # type: ignore[type-var]
    shown = describe_values(values[:NAMED])
    return shown if len(values) <= NAMED else f"{shown} and {counted(len(values) - NAMED, 'other')}"

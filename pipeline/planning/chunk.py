"""A chunk of a plan: the unit of computing, committing and repeating."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from pipeline.declare.coordinates import Coordinate, Coordinates
from pipeline.declare.node import Node
from pipeline.store.files import FileVersion

Block = tuple[Coordinate, ...]
"""Coordinates of a chunk along one dimension."""

Position = tuple[tuple[str, Block], ...]
"""Coordinates of a chunk, hashable."""


def position(coordinates: Coordinates) -> Position:
    """Coordinates as a dictionary's key."""
    return tuple((dim, tuple(values)) for dim, values in coordinates.items())


NO_FILES: dict[str, FileVersion] = {}
"""Files of a chunk that reads none; one object, for a plan may have a million of them."""


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """One chunk: a node at some coordinates, with its key and the upstream chunks that it reads."""

    node: Node
    coordinates: Coordinates
    key: str
    inputs: tuple[tuple[Chunk, ...], ...]
    files: dict[str, FileVersion] = field(default_factory=lambda: NO_FILES)

    def sources(self) -> Iterator[Chunk]:
        """All that its task reads or computes on the way: its inputs, and those of transient ones."""
        for source in chain(*self.inputs):
            yield source
            if source.node.stage.transient:
                yield from source.sources()

    def transient(self) -> Iterator[Chunk]:
        """Sources that its own task computes."""
        return (source for source in self.sources() if source.node.stage.transient)

    def stored(self) -> Iterator[Chunk]:
        """Sources that are read from the store."""
        return (source for source in self.sources() if not source.node.stage.transient)


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for cycles in the body: each would walk all that was made before, and find none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

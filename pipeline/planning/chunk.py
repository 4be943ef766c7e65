"""A chunk of a plan: the unit of computing, committing and repeating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipeline.declare.coordinates import Coordinates
from pipeline.declare.node import Node
from pipeline.store.files import FileVersion

Position = tuple[tuple[str, tuple[Any, ...]], ...]
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

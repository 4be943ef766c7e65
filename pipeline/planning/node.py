"""A node of a workflow: one stage, what it is given, and how its coordinates are cut into chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pipeline.declare.coordinates import Coordinate, Coordinates, blocks, describe_values
from pipeline.declare.signature import Input
from pipeline.declare.stage import Stage


@dataclass(frozen=True, eq=False)
class Node:
    """One stage of a workflow, with its parameters, inputs, coordinates and chunk sizes."""

    name: str
    stage: Stage
    inputs: tuple[Node, ...]
    over: Coordinates
    chunk: dict[str, int]
    parameters: dict[str, Any]
    files: dict[str, dict[Coordinate, Path] | Path] = field(default_factory=dict)
    memory: int = 0
    device_memory: int = 0
    stored: int = 0
    fits: Callable[[int, bool], str] | None = None

    def arguments(self) -> Iterator[tuple[Input, Node]]:
        """Each upstream node with the argument of the stage function that it feeds."""
        declared = self.stage.inputs
        for position, node in enumerate(self.inputs):
            yield declared[min(position, len(declared) - 1)], node

    def chunk_count(self) -> int:
        """How many chunks there are, without making them."""
        return prod(len(blocks(values, self.chunk[dim])) for dim, values in self.over.items())

    def chunks(self) -> list[Coordinates]:
        """The coordinates of every chunk, first dimension slowest."""
        cut = [blocks(values, self.chunk[dim]) for dim, values in self.over.items()]
        return [dict(zip(self.over, block, strict=True)) for block in product(*cut)]

    def __repr__(self) -> str:
        extents = ", ".join(f"{dim}={describe_values(values)}" for dim, values in self.over.items())
        return f"Node({self.name}: {self.stage.name} over {extents or 'nothing'})"

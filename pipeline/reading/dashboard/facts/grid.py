"""Chunks of all workflows, counted by node and by bins of configurations: few cells for any number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.declare.coordinates import Coordinate, natural_order
from pipeline.planning.manifest import Manifest, NodeRecord

MOST_CELLS, MOST_COLUMNS = 1500, 60
"""Cells that are drawn at most, and bins of one dimension; bins hold as many configurations as that takes."""


@dataclass
class Row:
    """A node of a workflow with its chunks counted by bins of the first dimension that it is mapped over."""

    workflow: str
    node: str
    stage: str
    dimension: str
    """Name of that dimension; empty for a node that has none, whose only bin is 0."""
    place: dict[str, int]
    """Bin of each chunk, by key."""
    total: Counter[int]
    stored: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    running: Counter[int] = field(default_factory=Counter)

    @property
    def chunks(self) -> int:
        """Number of them in the end."""
        return len(self.place)

    @property
    def left(self) -> int:
        """Number of those that are not stored."""
        return self.chunks - self.stored.total()


@dataclass
class Axis:
    """Coordinates along a dimension, in order, and how many of them share a bin."""

    labels: list[Coordinate]
    width: int

    def bin(self, number: int) -> range:
        """Numbers of the coordinates in a bin."""
        return range(number * self.width, min((number + 1) * self.width, len(self.labels)))

    def named(self, number: int) -> str:
        """First and last coordinate of a bin."""
        inside = self.bin(number)
        first, last = self.labels[inside.start], self.labels[inside.stop - 1]
        return str(first) if first == last else f"{first} … {last}"


class Grid:
    """Rows of cells for the nodes that are stored, in the order of their workflows."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        nodes = [
            (manifest.workflow, name, node)
            for manifest in manifests
            for name, node in sorted(manifest.nodes.items(), key=lambda item: _depth(manifest, item[0]))
            if not node.content["transient"]
        ]
        columns = max(1, min(MOST_COLUMNS, MOST_CELLS // max(1, len(nodes))))
        self.axes = {name: _axis(labels, columns) for name, labels in _labels(nodes).items()}
        self.rows = [self._row(*node) for node in nodes]

    def _row(self, workflow: str, name: str, node: NodeRecord) -> Row:
        over = tuple(node.content["over"])
        dimension = over[0] if over else ""
        axis = self.axes.get(dimension)
        number = {label: k // axis.width for k, label in enumerate(axis.labels)} if axis else {}
        bins = [number[block[0]] for block in node.chunks.blocks(0)] if over else [0]
        keys = list(node.chunks.in_order())
        each = max(1, len(keys) // max(1, len(bins)))
        place = {key: bins[k // each] for k, key in enumerate(keys)}
        return Row(workflow, name, node.content["stage"], dimension, place, Counter(place.values()))

    def clear(self) -> None:
        """Count from none."""
        for row in self.rows:
            row.stored.clear()

    def add(self, stage: str, keys: Iterable[str]) -> None:
        """Count chunks that were committed."""
        rows = [row for row in self.rows if row.stage == stage]
        for key in keys:
            for row in rows:
                if (column := row.place.get(key)) is not None:
                    row.stored[column] += 1

    def mark(self, running: Iterable[str], failed: Iterable[str]) -> None:
        """Say which chunks are in work, and which have failed, at this moment."""
        in_work, lost = list(running), list(failed)
        for row in self.rows:
            row.running = Counter(row.place[key] for key in in_work if key in row.place)
            row.failed = Counter(row.place[key] for key in lost if key in row.place)

    def span(self, row: Row, column: int) -> tuple[float, float]:
        """Part of the width, 0 to 1, that a cell takes."""
        if not row.dimension:
            return 0.0, 1.0
        axis = self.axes[row.dimension]
        inside = axis.bin(column)
        return inside.start / len(axis.labels), inside.stop / len(axis.labels)

    def named(self, row: Row, column: int) -> str:
        """The configurations of a cell."""
        return self.axes[row.dimension].named(column) if row.dimension else "all"

    def keys(self, workflow: str, node: str, column: int) -> list[str]:
        """Keys of the chunks in a cell; none where there is no such cell."""
        rows = (row for row in self.rows if (row.workflow, row.node) == (workflow, node))
        return [key for row in rows for key, place in row.place.items() if place == column]


def _depth(manifest: Manifest, name: str) -> int:
    """Number of nodes above each other that a node stands on."""
    inputs = manifest.nodes[name].content["inputs"] if name in manifest.nodes else ()
    return 1 + max((_depth(manifest, each) for each in inputs), default=0)


def _labels(nodes: Sequence[tuple[str, str, NodeRecord]]) -> dict[str, list[Coordinate]]:
    """All coordinates of the dimensions that nodes are mapped over first, in order."""
    found: dict[str, dict[Any, None]] = {}
    for _, _, node in nodes:
        if over := node.content["over"]:
            known = found.setdefault(over[0], {})
            for block in node.chunks.blocks(0):
                known.update(dict.fromkeys(block))
    return {name: sorted(labels, key=natural_order) for name, labels in found.items()}


def _axis(labels: list[Coordinate], columns: int) -> Axis:
    return Axis(labels, -(-len(labels) // columns) or 1)

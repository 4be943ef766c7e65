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
class Axis:
    """Coordinates along a dimension, in order, and how many of them share a bin."""

    labels: Sequence[Coordinate]
    width: int

    def span(self, number: int) -> tuple[float, float]:
        """Part of the width, 0 to 1, that a bin takes."""
        whole = len(self.labels)
        return number * self.width / whole, min((number + 1) * self.width, whole) / whole

    def named(self, number: int) -> str:
        """First and last coordinate of a bin."""
        first, *others = self.labels[number * self.width : (number + 1) * self.width]
        return f"{first} … {others[-1]}" if others else str(first)


ALL = Axis(("all",), 1)


@dataclass
class Row:
    """A node of a workflow with its chunks counted by bins of the first dimension that it is mapped over."""

    workflow: str
    node: str
    stage: str
    axis: Axis
    """That dimension; of a node that has none the only bin is 0, of all."""
    place: dict[str, int]
    """Bin of each chunk, by key."""
    total: Counter[int]
    stored: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    running: Counter[int] = field(default_factory=Counter)


class Grid:
    """Rows of cells for the nodes that are stored, in the order of their workflows."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        nodes = [
            (manifest.workflow, name, node)
            for manifest in manifests
            for name, node in sorted(manifest.stored.items(), key=lambda item: _depth(manifest, item[0]))
        ]
        columns = max(1, min(MOST_COLUMNS, MOST_CELLS // max(1, len(nodes))))
        self.axes = {
            name: Axis(labels, -(-len(labels) // columns) or 1) for name, labels in _labels(nodes).items()
        }
        self.rows = [self._row(*node) for node in nodes]

    def _row(self, workflow: str, name: str, node: NodeRecord) -> Row:
        over = tuple(node.content["over"])
        axis = self.axes[over[0]] if over else ALL
        number = {label: k // axis.width for k, label in enumerate(axis.labels)}
        bins = [number[block[0]] for block in node.chunks.blocks(0)] if over else [0]
        keys = list(node.chunks.in_order())
        each = max(1, len(keys) // max(1, len(bins)))
        place = {key: bins[k // each] for k, key in enumerate(keys)}
        return Row(workflow, name, node.stage, axis, place, Counter(place.values()))

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

    def count(self, state: str) -> int:
        """Chunks in a state, by the name of their counts in a row; `total`: all."""
        return sum(getattr(row, state).total() for row in self.rows)

    def keys(self, workflow: str, node: str, column: int) -> dict[str, str]:
        """Keys of the chunks in a cell, with their stage; none where there is no such cell."""
        rows = (row for row in self.rows if (row.workflow, row.node) == (workflow, node))
        return {key: row.stage for row in rows for key, place in row.place.items() if place == column}


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

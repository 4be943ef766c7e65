"""Records of committed chunks, read in the background a share of a second at a time, summed by node."""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.reading.dashboard.facts.gpus import GpuFigures, gpus_of_record
from pipeline.store.errors import DamagedChunkError, UnreadableChunkError
from pipeline.store.store import Store

NAN = math.nan
KEPT_HISTORIES = 12
"""Histories that are kept of solves, and of eigensolves and setups, that were committed last."""


@dataclass
class NodeFigures:
    """Figures of one node's chunks, a number for each; NaN where a record does not have it."""

    node: str
    finished: array[float] = field(default_factory=lambda: array("d"))
    """Seconds since 1970."""
    seconds: array[float] = field(default_factory=lambda: array("d"))
    joules: array[float] = field(default_factory=lambda: array("d"))
    device_bytes: array[float] = field(default_factory=lambda: array("d"))
    host_bytes: array[float] = field(default_factory=lambda: array("d"))
    gflops: array[float] = field(default_factory=lambda: array("d"))
    of_copy: array[float] = field(default_factory=lambda: array("d"))

    def add(self, record: dict[str, Any]) -> None:
        """Take a record into account."""
        solved = _solves(record)
        self.finished.append(datetime.fromisoformat(record["finished"]).timestamp())
        for values, found in (
            (self.seconds, record.get("seconds")),
            (self.joules, record.get("joules")),
            (self.device_bytes, record.get("device_bytes")),
            (self.host_bytes, record.get("host_bytes")),
            (self.gflops, solved.get("gflops")),
            (self.of_copy, solved.get("of_copy_bandwidth")),
        ):
            values.append(found if isinstance(found, (int, float)) else NAN)


@dataclass(frozen=True)
class Convergence:
    """A solve, an eigensolve or a setup that was committed: how it got there."""

    label: str
    stage: str
    key: str
    points: list[tuple[float, float]]
    """(iterations or restarts, residual)."""


class Records:
    """Figures of all chunks that are in the store, as far as their records were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unread: deque[tuple[str, str]] = deque()
        self.clear()

    def clear(self) -> None:
        """Forget all, for chunks were removed."""
        self._unread.clear()
        self.nodes: dict[str, NodeFigures] = {}
        self.gpus: dict[str, GpuFigures] = {}
        self.read = self.unreadable = 0
        self.solves: deque[Convergence] = deque(maxlen=KEPT_HISTORIES)
        self.eigensolves: deque[Convergence] = deque(maxlen=KEPT_HISTORIES)
        self.setups: deque[dict[str, Any]] = deque(maxlen=KEPT_HISTORIES)

    def wait_for(self, stage: str, keys: list[str]) -> None:
        """Put chunks in front of those that are still to be read: what is new is shown first."""
        self._unread.extendleft((stage, key) for key in keys)

    @property
    def waiting(self) -> int:
        """Number of chunks whose records are not read yet."""
        return len(self._unread)

    def refresh(self, budget: float) -> None:
        """Read records for so many seconds."""
        end = time.monotonic() + budget
        while self._unread and time.monotonic() < end:
            stage, key = self._unread.popleft()
            try:
                self._add(stage, key, self._store.record(stage, key))
            except (DamagedChunkError, UnreadableChunkError, KeyError, ValueError, TypeError):
                self.unreadable += 1

    def _add(self, stage: str, key: str, record: dict[str, Any]) -> None:
        node = record["node"]
        self.nodes.setdefault(node, NodeFigures(node)).add(record)
        for place, facts in gpus_of_record(record):
            self.gpus.setdefault(place, GpuFigures(place)).add(record["seconds"], facts)
        self.read += 1
        statistics, label = record.get("statistics", {}), label_of(record)
        if history := statistics.get("history"):
            step = statistics.get("history_step", 1)
            curve = [(step * number, float(residual)) for number, residual in enumerate(history)]
            self.solves.append(Convergence(label, stage, key, curve))
        if rows := statistics.get("convergence"):
            self.eigensolves.append(Convergence(label, stage, key, [(row[0], float(row[2])) for row in rows]))
        if "rate" in statistics and "attempts" in statistics:
            self.setups.append({"label": label, "stage": stage, "key": key, **statistics})


def _solves(record: dict[str, Any]) -> dict[str, Any]:
    """Statistics of a chunk's solves: its own, or those of a transient result that it is made of."""
    parts = [record, *record.get("transient", ())]
    return next((part["statistics"] for part in parts if "gflops" in part.get("statistics", {})), {})


def label_of(record: dict[str, Any]) -> str:
    """Node and first coordinates of a chunk: `loops conf.0010 4`."""
    return " ".join([record["node"], *(str(values[0]) for values in record["coordinates"].values())])

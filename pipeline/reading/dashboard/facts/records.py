"""Records of committed chunks, read in the background a share of a second at a time, summed by node."""

from __future__ import annotations

import math
import time
from array import array
from collections import ChainMap, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.reading.dashboard.facts.gpus import GpuFigures
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.store.errors import DamagedChunkError, UnreadableChunkError
from pipeline.store.record import Record
from pipeline.store.store import Store

NAN = math.nan


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
    statistics: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Sum of each number in the statistics of stages, and how many chunks have it."""

    def add(self, record: Record) -> None:
        """Take a record into account."""
        self.finished.append(datetime.fromisoformat(record.finished).timestamp())
        for values, found in (
            (self.seconds, record.seconds),
            (self.joules, record.joules),
            (self.device_bytes, record.device_bytes),
            (self.host_bytes, record.host_bytes),
        ):
            values.append(NAN if found is None else found)
        for name, number in ChainMap(*map(dict, record.all_statistics())).items():
            if isinstance(number, (int, float)):
                total, chunks = self.statistics.get(name, (0.0, 0))
                self.statistics[name] = total + number, chunks + 1

    def mean(self, statistic: str) -> float | None:
        """Mean of a number in the statistics of its stage; None where no record has it."""
        total, chunks = self.statistics.get(statistic, (0.0, 0))
        return total / chunks if chunks else None


class Records:
    """Figures of all chunks that are in the store, as far as their records were read."""

    def __init__(self, store: Store, own: Collection[OwnFacts] = ()) -> None:
        self._store, self._own = store, own
        self._unread: deque[tuple[str, str]] = deque()
        self.clear()

    def clear(self) -> None:
        """Forget all, for chunks were removed."""
        self._unread.clear()
        self.nodes: dict[str, NodeFigures] = {}
        self.gpus: dict[str, GpuFigures] = {}
        self.read = self.unreadable = 0
        for own in self._own:
            own.clear()

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
                self._add(stage, key, Record.of(self._store.record(stage, key)))
            except (DamagedChunkError, UnreadableChunkError, KeyError, ValueError, TypeError):
                self.unreadable += 1

    def _add(self, stage: str, key: str, record: Record) -> None:
        self.nodes.setdefault(record.node, NodeFigures(record.node)).add(record)
        for facts in record.gpus:
            place = f"{record.host} {facts['gpu']}".strip()
            self.gpus.setdefault(place, GpuFigures(place)).add(record.seconds, facts)
        self.read += 1
        for own in self._own:
            own.add_record(stage, key, record)

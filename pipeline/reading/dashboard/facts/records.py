"""Records of committed chunks, read a share of a second at a time, and summed by node and by GPU."""

from __future__ import annotations

import time
from array import array
from collections import ChainMap, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.store.record import Record
from pipeline.store.store import Store

MOST_POINTS = 240
"""Points of a figure over time: more are averaged."""


@dataclass
class Figures:
    """Numbers of several chunks by name: their sum, how many chunks have each, and the largest.

    None: no chunk has it.
    """

    chunks: int = 0
    _known: dict[str, tuple[float, int, float]] = field(default_factory=dict)

    def add(self, facts: Mapping[str, object]) -> None:
        """Take the numbers of a chunk into account; all else is left out."""
        self.chunks += 1
        for name, number in facts.items():
            if isinstance(number, (int, float)):
                total, chunks, most = self._known.get(name, (0, 0, number))
                self._known[name] = total + number, chunks + 1, max(most, number)

    def total(self, name: str) -> float | None:
        """Sum over the chunks that have it."""
        return self._known[name][0] if name in self._known else None

    def counted(self, name: str) -> int:
        """Number of chunks that have it."""
        return self._known[name][1] if name in self._known else 0

    def mean(self, name: str) -> float | None:
        """Mean over the chunks that have it."""
        total = self.total(name)
        return None if total is None else total / self.counted(name)

    def most(self, name: str) -> float | None:
        """The largest of any chunk."""
        return self._known[name][2] if name in self._known else None


class Records:
    """Figures of all chunks that are in the store, as far as their records were read."""

    def __init__(self, store: Store, own: Collection[OwnFacts] = ()) -> None:
        self._store, self._own = store, own
        self._unread: deque[tuple[str, str]] = deque()
        self.clear()

    def clear(self) -> None:
        """Forget all, for chunks were removed."""
        self._unread.clear()
        self.nodes: dict[str, Figures] = {}
        """Of records and of the statistics of stages, by their own names."""
        self.gpus: dict[str, Figures] = {}
        """By machine and place on the PCI bus, beside others or alone."""
        self._metered = array("d")
        """Of each chunk that has joules: when it was finished (seconds since 1970), seconds, joules."""
        self.read = self.unreadable = 0
        for own in self._own:
            own.clear()

    def wait_for(self, stage: str, keys: Iterable[str]) -> None:
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
            except Exception:  # a foreign record may hold anything, and workflows' own facts are of it, too
                self.unreadable += 1

    def _add(self, stage: str, key: str, record: Record) -> None:
        finished = datetime.fromisoformat(record.finished).timestamp()
        facts = ChainMap(vars(record), *map(dict, record.all_statistics()))
        self.nodes.setdefault(record.node, Figures()).add(facts)
        if record.joules is not None:
            self._metered.extend((finished, record.seconds, record.joules))
        for gpu in record.gpus:
            self.gpus.setdefault(f"{record.host} {gpu['gpu']}".strip(), Figures()).add(
                {
                    **gpu,
                    "seconds": record.seconds,
                    "busy_seconds": None if (busy := gpu.get("busy")) is None else record.seconds * busy,
                    "sending_seconds": record.seconds if gpu.get("nvlink_sent") is not None else None,
                }
            )
        self.read += 1
        for own in self._own:
            own.add_record(stage, key, record)

    def power(self) -> tuple[list[float], list[float], list[float]]:
        """Times (seconds since 1970), mean watts of chunks that ended about then, and joules until then."""
        chunks = np.reshape(self._metered, (-1, 3))
        chunks = chunks[np.argsort(chunks[:, 0])]
        groups = [group for group in np.array_split(chunks, MOST_POINTS) if len(group)]
        watts = [float(group[:, 2].sum() / max(group[:, 1].sum(), 1e-9)) for group in groups]
        energy = np.cumsum([group[:, 2].sum() for group in groups]).tolist()
        return [float(group[:, 0].mean()) for group in groups], watts, energy

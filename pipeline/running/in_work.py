"""The chunks that workers compute, when each was last heard of, and who died with one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.worker.events import ENDED, Event, EventKind


@dataclass(frozen=True)
class Silence:
    """A chunk in work without news."""

    worker: str
    key: str
    seconds: float
    told: bool
    """True if it told its progress before."""


@dataclass
class InWork:
    """Chunks in work by the news of their workers."""

    by_worker: dict[str, str] = field(default_factory=dict)
    """The chunk that each worker computes, by the worker's address."""
    started: dict[str, float] = field(default_factory=dict)
    """When each chunk was begun, by its worker's clock; of all that ever were."""
    deaths: Counter[str] = field(default_factory=Counter)
    """Workers that died while they computed a chunk, since a task began to run alone."""
    _heard: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """Per chunk in work, the time of the last news of it by our clock, and if it told its progress."""

    def note(self, event: Event, *, known: bool) -> bool:
        """Take note of what a worker tells; True if it began or ended a chunk of this session.

        known: whether the chunk is of this session. News of what a chunk needs are news of the chunk.
        """
        kind, key, worker, now = event.kind, event.key, event.worker, time.monotonic()
        if kind == EventKind.STARTED and known:
            self.started[key] = event.time
            self.by_worker[worker] = key
            self._heard[key] = (now, False)
            return True
        if current := self.by_worker.get(worker):
            self._heard[current] = (now, self._heard[current][1] or kind == EventKind.PROGRESS)
        if kind in ENDED and self.by_worker.get(worker) == key:
            del self.by_worker[worker]
            return True
        return False

    def seconds(self, event: Event) -> float:
        """Seconds that the chunk took which an event says has ended."""
        return event.time - self.started.get(event.key, event.time)

    def lost(self, workers: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Take note of dead workers; those that had a chunk in work, with its key."""
        for worker in workers:
            if key := self.by_worker.pop(worker, ""):
                self.deaths[key] += 1
                yield worker, key

    def silences(self) -> list[Silence]:
        """All chunks in work, the longest without news first."""
        moment = time.monotonic()
        found = [
            Silence(worker, key, moment - self._heard[key][0], self._heard[key][1])
            for worker, key in self.by_worker.items()
        ]
        return sorted(found, key=lambda silence: -silence.seconds)

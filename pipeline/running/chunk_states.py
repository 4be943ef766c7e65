"""Chunks of a session as its driver sees them: in work, by whom and since when; ended, and how."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pipeline.planning.chunk import Chunk
from pipeline.running.event_log import EventLog
from pipeline.running.failures import Failure
from pipeline.running.graph import TaskPlan
from pipeline.store.store import Store
from pipeline.worker.events import ENDED, LOST, ChunkState, Event, EventKind, chunk_identity

HERE = (ChunkState.DONE, ChunkState.PRESENT)
"""States of a chunk that is in the store."""


@dataclass
class InWork:
    """A chunk that a worker computes; heard: when there was news of it, told: whether of its progress."""

    worker: str
    key: str
    heard: float
    told: bool = False

    @property
    def silence(self) -> float:
        """Seconds without news."""
        return time.monotonic() - self.heard


class ChunkStates:
    """States of chunks by the events of workers, by the store, and by the driver's own verdicts.

    It decides what a driver does, and so is no view of the log: whatever becomes of that, a run goes on.

    Args:
        store: asked where nobody told.
        log: where the driver's own verdicts are written.
    """

    def __init__(self, store: Store, log: EventLog) -> None:
        self._store, self._log = store, log
        self.in_work: dict[str, InWork] = {}
        """By the address of the worker."""
        self.started: dict[str, float] = {}
        """When each chunk was begun, by its worker's clock; of all that ever were."""
        self.deaths: Counter[str] = Counter()
        """Workers that died while they computed a chunk, since a task began to run alone."""
        self.by_key: dict[str, ChunkState] = {}
        self.failures: list[Failure] = []
        self.damaged: set[tuple[str, str]] = set()
        """Stage and key of stored chunks that tasks found damaged."""
        self._lacking: set[str] = set()
        """Chunks whose result is missing for those who need it."""

    @property
    def lacking(self) -> frozenset[str]:
        """Keys of chunks whose result is missing for those who need it."""
        return frozenset(self._lacking)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def set(self, key: str, state: ChunkState) -> None:
        """Note the end of a chunk."""
        self.by_key[key] = state
        if state in LOST:
            self._lacking.add(key)

    def hear(self, event: Event, *, known: bool) -> bool:
        """Take note of what a worker tells; True if it began or ended a chunk of this session.

        known: whether the chunk is of this session. News of what a chunk needs are news of the chunk.
        """
        current = self.in_work.get(event.worker)
        if event.kind == EventKind.STARTED and known:
            self.started[event.key] = event.time
            self.in_work[event.worker] = InWork(event.worker, event.key, time.monotonic())
            return True
        if current:
            current.heard = time.monotonic()
            current.told = current.told or event.kind == EventKind.PROGRESS
        if current and event.kind in ENDED and current.key == event.key:
            del self.in_work[event.worker]
            return True
        return False

    def seconds(self, event: Event) -> float:
        """Seconds that the chunk took which an event says has ended."""
        return event.time - self.started.get(event.key, event.time)

    def lost(self, workers: Iterable[str]) -> Iterator[InWork]:
        """Take note of dead workers; what they had in work."""
        for worker in workers:
            if work := self.in_work.pop(worker, None):
                self.deaths[work.key] += 1
                yield work

    def silent(self) -> list[InWork]:
        """All chunks in work, the longest without news first."""
        return sorted(self.in_work.values(), key=lambda work: work.heard)

    def end(self, event: Event) -> None:
        """Note the end that a worker told, of a chunk that had none."""
        self.set(event.key, ChunkState(event.kind))
        if event.kind == ChunkState.FAILED:
            self.failures.append(Failure(event.node, event.coordinates, event.error))
        if event.damaged:
            self.damaged.add(event.damaged)

    def confirm(self, task: TaskPlan) -> None:
        """A task that returned has reported its chunks, unless its worker died just then: ask the store."""
        for chunk in task.chunks:
            if chunk.key not in self.by_key and self._store.has(chunk.node.stage.name, chunk.key):
                self.set(chunk.key, ChunkState.DONE)

    def is_done(self, task: TaskPlan) -> bool:
        """True if all its chunks are in the store."""
        return all(
            self.by_key.get(chunk.key) in HERE or self._store.has(chunk.node.stage.name, chunk.key)
            for chunk in task.chunks
        )

    def has_ended(self, task: TaskPlan) -> bool:
        """True if all its chunks came to an end, of whatever kind."""
        return all(chunk.key in self.by_key for chunk in task.chunks)

    def fail(self, chunks: Iterable[Chunk], error: str) -> None:
        """Have chunks failed, those that have not ended otherwise."""
        for chunk in chunks:
            if chunk.key not in self.by_key:
                self._record(chunk, ChunkState.FAILED, error)
                self.failures.append(Failure(chunk.node.name, chunk.coordinates, error))

    def block_after_failures(self, tasks: Sequence[TaskPlan]) -> None:
        """Note the chunks that cannot run because an input failed; tasks: upstream before downstream."""
        for task, chunk in chain.from_iterable(((task, c) for c in task.chunks) for task in tasks):
            if chunk.key not in self.by_key and self._lacking.intersection(task.needs[chunk.key]):
                self._record(chunk, ChunkState.BLOCKED, "an input failed")

    def _record(self, chunk: Chunk, state: ChunkState, error: str) -> None:
        self.set(chunk.key, state)
        about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
        self._log(Event(state, **about, error=error))

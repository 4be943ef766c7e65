"""Ends of a session's chunks, and what they mean for those that need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from pipeline.planning.chunk import Chunk
from pipeline.running.event_log import EventLog
from pipeline.running.failures import Failure
from pipeline.running.graph import TaskPlan
from pipeline.store.store import Store
from pipeline.worker.events import LOST, ChunkState, Event, chunk_identity

HERE = (ChunkState.DONE, ChunkState.PRESENT)
"""States of a chunk that is in the store."""


class ChunkStates:
    """States of chunks by key, as far as they came to an end, and the failures among them.

    Args:
        store: asked where nobody told.
        log: where the driver's own verdicts are written.
    """

    def __init__(self, store: Store, log: EventLog) -> None:
        self._store, self._log = store, log
        self.by_key: dict[str, ChunkState] = {}
        self.failures: list[Failure] = []
        self.damaged: set[tuple[str, str]] = set()
        """Stage and key of stored chunks that tasks found damaged."""
        self._lost: set[str] = set()
        """Chunks whose result is missing for those who need it."""

    @property
    def lost(self) -> frozenset[str]:
        """Keys of chunks whose result is missing for those who need it."""
        return frozenset(self._lost)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def set(self, key: str, state: ChunkState) -> None:
        """Note the end of a chunk."""
        self.by_key[key] = state
        if state in LOST:
            self._lost.add(key)

    def note(self, event: Event) -> None:
        """Note the end that a worker told; the first one stands."""
        if event.key in self.by_key:
            return
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
            if chunk.key not in self.by_key and self._lost.intersection(task.needs[chunk.key]):
                self._record(chunk, ChunkState.BLOCKED, "an input failed")

    def _record(self, chunk: Chunk, state: ChunkState, error: str) -> None:
        self.set(chunk.key, state)
        about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
        self._log(Event(state, **about, error=error))

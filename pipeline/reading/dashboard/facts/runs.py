"""Runs of a store by their event logs, read on from where the last look ended."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from pipeline.planning.manifest import PART
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.running.event_log import log_of, runs, state_of
from pipeline.running.run_state import RunState
from pipeline.store.lease import clock
from pipeline.store.plain_files import json_object
from pipeline.store.record import Record
from pipeline.store.store import Store
from pipeline.worker.events import ENDED, ChunkState, Event, EventKind

SLICE = 2 << 20
"""Bytes of a log that one look reads at most."""

FOLLOWED = 600.0
"""Seconds: logs that were written to more recently are read as a whole, and the newest one always."""

RECENT = 20_000
"""Commits that a pace is taken from, at most."""

TRACEBACKS = 20
"""Kinds of failures of which a traceback is kept."""


@dataclass
class WorkerNews:
    """News of a worker, by its events."""

    chunks: int = 0
    """Ended by it."""
    last: float = 0.0
    """Time of its last event."""
    at_work: str = ""
    """The chunk that it computes, for people."""


@dataclass
class RunLog:
    """A run that is followed: its counts, failures and workers so far."""

    store: Store
    name: str
    own: Collection[OwnFacts] = ()
    """Of workflows, which take its events, too."""
    offset: int = 0
    size: int = 0
    state: RunState = field(default_factory=RunState)
    committed: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Time and node of the last commits."""
    moments: array[float] = field(default_factory=lambda: array("d"))
    """Times of all commits."""
    failed: set[str] = field(default_factory=set)
    """Keys of chunks that failed and were not computed since."""
    details: dict[str, str] = field(default_factory=dict)
    """A traceback for the first error of its kind, by that error."""
    workers: dict[str, WorkerNews] = field(default_factory=dict)

    @property
    def part_read(self) -> float:
        """Part of the log, 0 to 1, that these counts are of."""
        return self.offset / self.size if self.size else 1.0

    def advance(self) -> bool:
        """Read on, a slice at most; True if there was anything."""
        path = log_of(self.store, self.name)
        with suppress(OSError), open(path, "rb") as lines:
            self.size = lines.seek(0, 2)
            lines.seek(self.offset)
            piece = lines.read(SLICE)
            whole = piece[: piece.rfind(b"\n") + 1]
            self.offset += len(whole)
            for line in whole.splitlines():
                if content := json_object(line):
                    with suppress(ValueError):
                        self.add(Event.of(content))
            return bool(whole)
        return False

    def add(self, event: Event) -> None:
        """Take an event into account."""
        self.state.add(event)
        kind, key = event.kind, event.key
        if event.worker:
            self._hear(self.workers.setdefault(event.worker, WorkerNews()), event)
        if kind in ENDED:
            if kind in (ChunkState.DONE, ChunkState.PRESENT):
                self.committed.append((event.time, event.node))
                self.moments.append(event.time)
                self.failed.discard(key)
            elif kind == ChunkState.FAILED:
                self.failed.add(key)
                first = self.state.failures.like(event.error) == 1
                if first and len(self.details) < TRACEBACKS and event.details:
                    self.details[event.error] = event.details
        for facts in self.own:
            with suppress(Exception):  # what a stage reports may be anything
                facts.add_event(self.name, event)

    def _hear(self, news: WorkerNews, event: Event) -> None:
        news.last = event.time
        if event.kind == EventKind.STARTED:
            news.at_work = label_of(event)
        elif event.kind in ENDED:
            news.chunks, news.at_work = news.chunks + 1, ""


def label_of(chunk: Event | Record) -> str:
    """Node and first coordinates of a chunk: `loops conf.0010 4`."""
    return " ".join(
        [chunk.node, *(str(value) for values in chunk.coordinates.values() for value in values[:1])]
    )


class Runs:
    """All runs of a store: those of now are followed, of the others the state is kept."""

    def __init__(self, store: Store, own: Collection[OwnFacts] = ()) -> None:
        self._store, self._own = store, own
        self.followed: dict[str, RunLog] = {}
        self._others: dict[str, tuple[int, RunState]] = {}
        self._names: list[str] = []

    def refresh(self) -> None:
        """Read on in the logs of those that are followed, and see which others there are."""
        self._names = runs(self._store)
        recently = clock(self._store.path) - FOLLOWED
        for name in self._names:
            with suppress(OSError):
                stat = log_of(self._store, name).stat()
                if name not in self.followed and (stat.st_mtime > recently or name == self._names[-1]):
                    self.followed[name] = RunLog(self._store, name, self._own)
                elif name not in self.followed and self._others.get(name, (0,))[0] != stat.st_size:
                    self._others[name] = (stat.st_size, state_of(self._store, name))
        for log in self.followed.values():
            log.advance()
        for name in reversed(self._names):  # past those that only averaged what another left complete
            if self.newest:
                break
            if name not in self.followed:
                self.followed[name] = RunLog(self._store, name, self._own)
                self.followed[name].advance()

    @property
    def newest(self) -> RunLog | None:
        """The run that began last, or the one before where that only averaged what it left complete."""
        known = (self.followed[name] for name in reversed(self._names) if name in self.followed)
        return next((log for log in known if not log.state.first.workflow.endswith(PART)), None)

    def history(self) -> dict[str, RunState]:
        """States of all runs, newest first."""
        states = {name: state for name, (_, state) in self._others.items()}
        states |= {name: log.state for name, log in self.followed.items()}
        return {name: states[name] for name in reversed(self._names) if name in states}

"""Events of a run: append-only JSON lines, `<store>/.runs/<run>/events.jsonl`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from pipeline.store.durable import delete
from pipeline.store.plain_files import json_lines, json_object, plain
from pipeline.store.store import Store
from pipeline.worker.events import ENDED, ChunkState, EventKind
from stages.base.atomic import replacing

Event = dict[str, Any]
Listener = Callable[[Event], None]

LOG, TALLY = "events.jsonl", "tally.json"

RUNS_KEPT = 50
"""Logs of runs that a store keeps, the newest."""

LOG_BYTES = 64 << 20
"""Of the log of a run: beyond it, what goes well with a chunk is shown and counted but not written."""

FAILURES_KEPT = 1000
"""Failures that a tally holds, the first ones."""

TALLY_BYTES = 1 << 20
TALLY_INTERVAL = 5.0
"""A log that is longer has a tally beside it, so that nobody need read all of it; seconds between two."""

LATELY = 15
"""Chunks of a node whose seconds a tally holds, the last ones."""

GOES_WELL = (EventKind.STARTED, EventKind.PROGRESS, ChunkState.DONE, ChunkState.PRESENT)


@dataclass
class Tally:
    """Counts of the events of a run."""

    first: Event = field(default_factory=dict)
    last: Event = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Number of chunks by how they ended."""
    running: dict[str, Event] = field(default_factory=dict)
    """By key, the last event of each chunk that has begun and not ended."""
    ended: dict[str, int] = field(default_factory=dict)
    """Number of chunks that ended, by node."""
    began: dict[str, float] = field(default_factory=dict)
    """By key, when each chunk in work began, by its worker's clock."""
    at_once: int = 0
    """Chunks in work when the last one began, which counts."""
    took: dict[str, list[float]] = field(default_factory=dict)
    """By node, seconds of the last `LATELY` chunks that were computed, without those that kernels took."""
    joules: dict[str, float] = field(default_factory=dict)
    """Energy of the chunks that were computed, by stage."""
    measured: dict[str, int] = field(default_factory=dict)
    """Number of chunks that it is of, by stage."""
    unmeasured: dict[str, int] = field(default_factory=dict)
    """Number of those whose energy nothing measured, by stage."""
    failed: list[Event] = field(default_factory=list)
    """The first failures, up to `FAILURES_KEPT`."""
    checks: dict[str, int] = field(default_factory=dict)
    """Number of chunks that were repeated in part, of checks that failed, of chunks that were retracted."""

    def add(self, event: Event) -> None:
        """Count the next event."""
        self.first, self.last = self.first or event, event
        kind = "repeated" if event.get("repeated") else event["event"]
        if kind in ("repeated", EventKind.DISAGREED, EventKind.RETRACTED):
            self.checks[kind] = self.checks.get(kind, 0) + 1
        if event["event"] in (EventKind.STARTED, EventKind.PROGRESS):
            self.running[event["key"]] = {**self.running.get(event["key"], {}), **event}
            if event["event"] == EventKind.STARTED:
                self.began[event["key"]] = event["time"]
                self.at_once = len(self.began)
        elif event["event"] in ENDED:
            self.running.pop(event["key"], None)
            self.ends[event["event"]] = self.ends.get(event["event"], 0) + 1
            self.ended[event["node"]] = self.ended.get(event["node"], 0) + 1
            began = self.began.pop(event["key"], None)
            if event["event"] == ChunkState.DONE:
                self._add_energy(event["stage"], event.get("joules"))
                if began is not None:
                    self._add_seconds(event["node"], event["time"] - began - event.get("kernels", 0.0))
            if event["event"] == ChunkState.FAILED and len(self.failed) < FAILURES_KEPT:
                self.failed.append({name: event[name] for name in ("node", "coordinates", "error")})

    def _add_seconds(self, node: str, seconds: float) -> None:
        self.took[node] = [*self.took.get(node, []), max(seconds, 0.0)][-LATELY:]

    def _add_energy(self, stage: str, joules: float | None) -> None:
        if joules is None:
            self.unmeasured[stage] = self.unmeasured.get(stage, 0) + 1
        else:
            self.joules[stage] = self.joules.get(stage, 0.0) + joules
            self.measured[stage] = self.measured.get(stage, 0) + 1


TYPES: dict[str, Any] = {
    **dict.fromkeys(("event", "node", "stage", "key", "error", "workflow", "worker", "stopped"), str),
    **dict.fromkeys(("time", "done", "total", "kernels"), (int, float)),
    **dict.fromkeys(("coordinates", "missing"), dict),
    "joules": (int, float, NoneType),
}
"""Of the values of events, as far as they have them."""

_CHUNK = ("event", "time", "node", "stage", "key", "coordinates")
OF_CHUNKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((EventKind.STARTED, EventKind.PROGRESS, *ENDED), _CHUNK),
    ChunkState.FAILED: (*_CHUNK, "error"),
}
"""What events of these kinds have."""

SECRET = {"dashboard"}
"""What is shown to the listener alone: others may read the store."""


class EventLog:
    """The log of one run: every event is written, and shown to the listener.

    Nothing that watches a run ends it: what the tally, the listener or another watcher raises is said once.
    A line that cannot be written is left out: what a full disk means to a run is for the chunks to say.
    """

    def __init__(self, store: Store, run: str, listener: Listener | None = None) -> None:
        folder, log = _folder(store, run), store.inside(".runs", run, LOG)
        self._path = folder / TALLY
        with store.writing("the log of the run"):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(log, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._tally = Tally()
        self._tallied = time.monotonic()
        self._listener = listener
        self._shown = 0
        """Events that the listener took."""
        self._failed: set[str] = set()
        """Watchers that have raised, as was said."""
        self._torn = b""
        """What ends a line that was written in part."""

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        with self.guarded("the tally"):
            self._keep_tally()
        self._file.close()

    def note(self, kind: EventKind | ChunkState, **values: Any) -> None:
        """Write an event of the driver itself, at this moment."""
        self({"time": time.time(), "event": kind, **values})

    def __call__(self, event: Event) -> None:
        """Write an event and show it to the listener."""
        written = {name: value for name, value in event.items() if name not in SECRET}
        with self.guarded("the log"):
            if event["event"] not in GOES_WELL or self._file.tell() <= LOG_BYTES:
                self._write(written)
        with self.guarded("the tally"):
            self._tally.add(written)
            if time.monotonic() - self._tallied > TALLY_INTERVAL:
                self._keep_tally()
        with self.guarded("the display"):
            if self._listener:
                self._listener({name: value for name, value in event.items() if name != "details"})
                self._shown += 1

    @contextmanager
    def guarded(self, watcher: str) -> Iterator[None]:
        """Go on after whatever the block raises; a watcher's first failure is a warning, of one line."""
        try:
            yield
        except Exception as error:
            if watcher in self._failed:
                return
            self._failed.add(watcher)
            shown = self._shown
            lines = str(error).splitlines() or ["no message"]
            message = f"{watcher} failed ({type(error).__name__}: {lines[0]}); the run goes on"
            self.note(EventKind.NOTE, message=message)
            if self._listener and self._shown == shown:
                with suppress(OSError, ValueError):  # of a terminal that is gone, or closed
                    print(f"warning: {message}", file=sys.stderr)

    def _write(self, event: Event) -> None:
        line = self._torn + json.dumps(event, default=str).encode() + b"\n"
        self._torn = b"\n"
        with suppress(OSError):
            if self._file.write(line) == len(line):
                self._torn = b""

    def _keep_tally(self) -> None:
        """Replace the tally; a machine that goes down leaves an old one, or one that is not read."""
        self._tallied, size = time.monotonic(), self._file.tell()
        with suppress(OSError):
            if size > TALLY_BYTES:
                with replacing(self._path) as file:
                    file.write(json.dumps({"read": size, **vars(self._tally)}, default=str).encode())


def runs(store: Store) -> list[str]:
    """All runs of a store, oldest first; those whose folder or log is a link or no file are left out."""
    logs = store.inside(".runs").glob(f"*/{LOG}")
    links = (path for path in logs if path.is_file() and not path.is_symlink())
    return sorted(path.parent.name for path in links if not path.parent.is_symlink())


def log_of(store: Store, run: str) -> Path:
    """File with the events of a run."""
    return _folder(store, run) / LOG


def _folder(store: Store, run: str) -> Path:
    return store.inside(".runs", run)


def drop_old_runs(store: Store, current: str = "") -> None:
    """Remove all logs but the newest, and that of the current run. Only for the one driver of the store."""
    for run in runs(store)[:-RUNS_KEPT]:
        if run != current:  # which looks old where a clock was wrong before
            delete(_folder(store, run))


def tally_of(store: Store, run: str) -> Tally:
    """Counts of the events of a run until now."""
    try:
        content = json_object(plain(_folder(store, run) / TALLY).read_bytes()) or {}
        read, tally = content.pop("read"), Tally(**content)
        if read < 0 or not all(map(is_whole, (tally.first, tally.last, *tally.running.values()))):
            raise ValueError(f"the tally of run {run} is damaged")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        read, tally = 0, Tally()
    for event in read_events(store, run, read):
        tally.add(event)
    return tally


def read_events(store: Store, run: str, first: int = 0) -> Iterator[Event]:
    """The events of a run that were written, in order, from a byte on; a damaged line is skipped."""
    return filter(is_whole, json_lines(_folder(store, run) / LOG, first))


def is_whole(event: Event) -> bool:
    """True for an event that has what its kind has, of the types that its readers count on."""
    needed = OF_CHUNKS.get(str(event.get("event")), ("event", "time"))
    return all(name in event for name in needed) and all(
        isinstance(event[name], kind) for name, kind in TYPES.items() if name in event
    )

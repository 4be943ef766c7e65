"""Events of a run: append-only JSON lines, `<store>/.runs/<run>/events.jsonl`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.running.run_state import RunState
from pipeline.store.durable import delete
from pipeline.store.plain_files import content_of, json_lines, json_object
from pipeline.store.store import Store
from pipeline.store.typed import fits
from pipeline.worker.events import ChunkState, Event, EventKind
from stages.base.atomic import replacing

Listener = Callable[[dict[str, Any]], None]

LOG, TALLY = "events.jsonl", "tally.json"

ADDRESS = ".dashboard"
"""File beside them with the address of the pages while a run goes on: its user alone can read it."""

RUNS_KEPT = 50
"""Logs of runs that a store keeps, the newest."""

LOG_BYTES = 64 << 20
"""Of the log of a run: beyond it, what goes well with a chunk is shown and counted but not written."""

TALLY_BYTES = 1 << 20
TALLY_INTERVAL = 5.0
"""A log that is longer has a tally beside it, so that nobody need read all of it; seconds between two."""

GOES_WELL = (EventKind.STARTED, EventKind.PROGRESS, EventKind.COMPILING, ChunkState.DONE, ChunkState.PRESENT)


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
        self.state = RunState()
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

    def __call__(self, event: Event) -> None:
        """Write an event and show it to the listener."""
        content = event.as_dict()
        with self.guarded("the log"):
            if event.kind not in GOES_WELL or self._file.tell() <= LOG_BYTES:
                self._write({name: value for name, value in content.items() if name not in SECRET})
        with self.guarded("the tally"):
            self.state.add(replace(event, dashboard="") if event.dashboard else event)
            if time.monotonic() - self._tallied > TALLY_INTERVAL:
                self._keep_tally()
        with self.guarded("the display"):
            if self._listener:
                self._listener({name: value for name, value in content.items() if name != "details"})
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
            self(Event(EventKind.NOTE, message=message))
            if self._listener and self._shown == shown:
                with suppress(OSError, ValueError):  # of a terminal that is gone, or closed
                    print(f"warning: {message}", file=sys.stderr)

    def _write(self, content: Mapping[str, object]) -> None:
        line = self._torn + json.dumps(content, default=str).encode() + b"\n"
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
                    file.write(json.dumps({"read": size, **self.state.as_dict()}, default=str).encode())


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


def state_of(store: Store, run: str) -> RunState:
    """The state of a run until now, by its tally and the events since."""
    try:
        content = json_object(content_of(_folder(store, run) / TALLY)) or {}
        read, state = content.pop("read"), RunState.of(content)
        if not fits(int)(read) or read < 0:
            raise ValueError(f"the tally of run {run} is damaged")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        read, state = 0, RunState()
    for event in read_events(store, run, read):
        state.add(event)
    return state


def read_events(store: Store, run: str, first: int = 0) -> Iterator[Event]:
    """The events of a run that were written, in order, from a byte on; a damaged line is skipped."""
    for line in json_lines(_folder(store, run) / LOG, first):
        with suppress(ValueError):
            yield Event.of(line)

"""Events of a run: append-only JSON lines, `<store>/.runs/<run>/events.jsonl`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.store.store import Store
from pipeline.worker.events import ChunkState, EventKind

Event = dict[str, Any]
Listener = Callable[[Event], None]

RUNS_KEPT = 50
"""Logs of runs that a store keeps, the newest."""

LOG_BYTES = 64 << 20
"""Of the log of a run: beyond it, progress of chunks is shown but not written."""


SECRET = {"dashboard"}
"""What is shown to the listener alone: others may read the store."""


class EventLog:
    """The log of one run: every event is written, and shown to the listener.

    A line that cannot be written is left out: what a full disk means to a run is for the chunks to say.
    """

    def __init__(self, store: Store, run: str, listener: Listener | None = None) -> None:
        folder = store.path / ".runs" / run
        with store.writing("the log of the run"):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / "events.jsonl", "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._listener = listener
        self._torn = b""
        """What ends a line that was written in part."""

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, kind: EventKind | ChunkState, **values: Any) -> None:
        """Write an event of the driver itself, at this moment."""
        self({"time": time.time(), "event": kind, **values})

    def __call__(self, event: Event) -> None:
        """Write an event and show it to the listener."""
        if event["event"] == EventKind.PROGRESS and self._file.tell() > LOG_BYTES:
            self._show(event)
            return
        written = {name: value for name, value in event.items() if name not in SECRET}
        line = self._torn + json.dumps(written).encode() + b"\n"
        self._torn = b"\n"
        with suppress(OSError):
            if self._file.write(line) == len(line):
                self._torn = b""
        self._show(event)

    def _show(self, event: Event) -> None:
        if self._listener:
            self._listener({name: value for name, value in event.items() if name != "details"})


def runs(store: Store) -> list[str]:
    """All runs of a store, oldest first."""
    return sorted(path.parent.name for path in (store.path / ".runs").glob("*/events.jsonl"))


def drop_old_runs(store: Store) -> None:
    """Remove all logs but the newest. Only for the one driver of the store."""
    for run in runs(store)[:-RUNS_KEPT]:
        shutil.rmtree(store.path / ".runs" / run, ignore_errors=True)


def read_events(store: Store, run: str) -> Iterator[Event]:
    """The events of a run, in order; a last line that was cut off is skipped."""
    path: Path = store.path / ".runs" / run / "events.jsonl"
    with open(path) as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue

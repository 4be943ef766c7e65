"""Progress on the terminal: of a run, drawn from the engine's events, and of other work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, literal, literal_lines
from pipeline.running.failures import Failure
from pipeline.running.run_state import RunState, compiling, time_left
from pipeline.worker.events import ENDED, ChunkState, Event, EventKind

NOTE = TextColumn("[dim]{task.fields[note]}")

ALL = "all"
"""Name of the bar of a whole run."""

MINUTE = 60.0
"""Seconds between two lines on how far a run is, where there is no terminal."""


WARNINGS = (
    EventKind.NOT_KEPT,
    EventKind.NOTE,
    EventKind.DAMAGED,
    EventKind.WAITING,
    EventKind.DISAGREED,
    EventKind.RETRACTED,
)
"""Events whose message is a warning."""

TOLD = 3
"""Failures of one kind that are told at once."""


class RunDisplay:
    """A bar per node and one of all on a terminal; elsewhere a line a minute, and when a node is complete.

    Called with each event. All is weighted by the seconds that chunks of each node took before, where those
    of every node are known; what is left follows from what chunks take in this run.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24, pulse_style="bar.back"),
            TextColumn("{task.fields[ended]}/{task.fields[chunks]}"),
            TimeElapsedColumn(),
            NOTE,
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._shares: dict[str, dict[str, float]] = {}
        """By node and key, the finished parts of chunks in work."""
        self._ended: dict[str, set[str]] = {}
        """By node, keys of the chunks that have ended."""
        self._done: dict[str, float] = {}
        """Chunks of a node that have ended, with parts of those in work."""
        self._state = RunState()
        self._began = self._said = time.monotonic()

    def __enter__(self) -> RunDisplay:
        with suppress(OSError):  # of a terminal that is gone
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.bars.stop()

    def __call__(self, content: dict[str, Any]) -> None:
        event = Event.of(content)
        kind = event.kind
        if kind == EventKind.RUN_STARTED:
            self._state = RunState()
        self._state.add(event)
        if kind == EventKind.RUN_STARTED:
            self._begin(event.missing)
        elif kind == EventKind.CLUSTER_READY:
            self._began = self._said = time.monotonic()
            if event.dashboard:
                self._say(f"dashboard: {self._address(event)}")
        elif kind in WARNINGS:
            self._say(f"warning: {event.message}", style="yellow")
        elif kind == EventKind.STOPPING:
            self._say(f"stopping ({event.reason}): running chunks may finish")
        elif kind == EventKind.PROGRESS:
            self._share(event, event.done / max(event.total, 1), _note(event))
        elif kind == EventKind.COMPILING:
            share = self._shares.get(event.node, {}).get(event.key, 0.0)
            doing = "compiling" if event.more.get("compiled") else "waiting for"
            self._share(event, share, f"{doing} kernels")
        elif kind in ENDED:
            self._end(event)
        if self._state.first.missing:
            self._tell_of_all(event)

    def _address(self, event: Event) -> str:
        """The address of the pages on a terminal; it holds a secret, and others may read a job's output."""
        if self._console.is_terminal:
            return event.dashboard
        if event.message:
            return f"its address holds a secret, and is in {event.message}, which only you can read"
        return (
            "its address holds a secret, and is printed on a terminal only; see `quarkline dashboard STORE`"
        )

    def _begin(self, missing: Mapping[str, int]) -> None:
        for node, chunks in {**missing, ALL: sum(missing.values())}.items():
            self._add_bar(node, chunks)
        self.bars.start_task(self._tasks[ALL])

    def _add_bar(self, node: str, chunks: int) -> None:
        self._shares[node], self._ended[node], self._done[node] = {}, set(), 0.0
        name = escape(literal(node).ljust(max(map(len, [ALL, *self._state.first.missing]))))
        self._tasks[node] = self.bars.add_task(
            name, total=chunks, chunks=chunks, ended=0, note="", start=False
        )

    def _tell_of_all(self, event: Event) -> None:
        """The bar of all, or a line a minute where there is no terminal."""
        part = self._state.part_done(self._done)
        chunks = sum(self._total(node) for node in self._tasks if node != ALL)
        ended = sum(map(len, self._ended.values()))
        left = time_left(self._state.seconds_left(self._done)) if ended < chunks else ""
        left = compiling(self._state.running.values()) or left
        self.bars.update(
            self._tasks[ALL], completed=part * chunks, total=chunks, chunks=chunks, ended=ended, note=left
        )
        if not self._console.is_terminal and time.monotonic() - self._said >= MINUTE:
            self._said = time.monotonic()
            lately = " ".join(filter(None, [event.node, _note(event)]))
            elapsed = duration_text(self._said - self._began)
            parts = [f"{ended} of {counted(chunks, 'chunk')} after {elapsed}", left, lately]
            self._say(", ".join(filter(None, parts)))

    def _share(self, event: Event, share: float, note: str) -> None:
        """`share` of a chunk is finished."""
        node, key = event.node, event.key
        if node not in self._tasks:  # a chunk that the store had, until it was found damaged
            self._add_bar(node, 0)
        shares, ended = self._shares[node], self._ended[node]
        if key not in ended:
            shares[key] = share
        self._done[node] = len(ended) + sum(shares.values())
        chunks = max(self._total(node), len(shares) + len(ended))
        self.bars.start_task(self._tasks[node])
        self.bars.update(
            self._tasks[node], completed=self._done[node], total=chunks, chunks=chunks, note=note
        )

    def _end(self, event: Event) -> None:
        node, key = event.node, event.key
        self._share(event, 1.0, "")
        if event.kind == ChunkState.FAILED:
            self._tell_of_failure(event)
        if key in self._ended[node]:  # computed again
            return
        del self._shares[node][key]
        self._ended[node].add(key)
        ended = len(self._ended[node])
        self.bars.update(self._tasks[node], ended=ended)
        if ended == self._total(node):
            self.bars.stop_task(self._tasks[node])
            if not self._console.is_terminal:
                self._say(f"{node}: {counted(ended, 'chunk')}")

    def _tell_of_failure(self, event: Event) -> None:
        """The first few failures whose errors differ in numbers at most; the closing table counts all."""
        failure = Failure(event.node, event.coordinates, event.error)
        alike = self._state.failures.like(event.error)
        if alike <= TOLD:
            self._say(f"failed: {failure}", style="red")
        if alike == TOLD:
            self._say("further failures of this kind are only counted, and listed at the end", style="red")

    def _say(self, text: str, style: str | None = None) -> None:
        """A line above the bars, as it is."""
        self._console.print(literal_lines(text), style=style, markup=False, highlight=False, soft_wrap=True)

    def _total(self, node: str) -> int:
        return self.bars.tasks[self._tasks[node]].fields["chunks"]


@contextmanager
def progress_bar(what: str, *columns: ProgressColumn, quiet: bool) -> Iterator[Callable[..., None]]:
    """A bar of what is done; yields what moves it: parts done, parts in all (0 for unknown), a note."""
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    shown = (TextColumn("{task.description}"), BarColumn(bar_width=24), *columns)
    with Progress(*shown, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=None, note="")

        def move(done: int, total: int, note: str = "") -> None:
            progress.update(task, completed=done, total=total or None, note=escape(literal(note)))

        yield move


def _note(event: Event) -> str:
    """The values that a stage reports while it works, such as iterations and residuals."""
    values = {name: event.more[name] for name in ("restarts", "iterations", "residual") if name in event.more}
    return " ".join(f"{name} {value:.3g}" for name, value in values.items())

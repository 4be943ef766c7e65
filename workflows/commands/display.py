"""Progress on the terminal: of a run, drawn from the engine's events, and of measuring kernels."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pipeline.declare.text import counted, literal, literal_lines
from pipeline.worker.events import ENDED, ChunkState, EventKind


class RunDisplay:
    """A bar per node on a terminal; elsewhere a line when a node is complete. Called with each event."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24, pulse_style="bar.back"),
            TextColumn("{task.fields[ended]}/{task.fields[chunks]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._shares: dict[str, dict[str, float]] = {}
        self._ended: Counter[str] = Counter()

    def __enter__(self) -> RunDisplay:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == EventKind.RUN_STARTED:
            self._begin(event["missing"])
        elif kind == EventKind.CLUSTER_READY:
            self._say(f"dashboard: {event['dashboard']}")
        elif kind in (EventKind.NOT_KEPT, EventKind.NOTE, EventKind.DAMAGED, EventKind.WAITING):
            self._say(f"warning: {event['message']}", style="yellow")
        elif kind == EventKind.STOPPING:
            self._say(f"stopping ({event['reason']}): running chunks may finish")
        elif kind == EventKind.PROGRESS:
            self._share(event, event["done"] / max(event["total"], 1), _note(event))
        elif kind in ENDED:
            self._end(event)

    def _begin(self, missing: dict[str, int]) -> None:
        width = max(map(len, missing), default=0)
        for node, chunks in missing.items():
            self._shares[node] = {}
            self._tasks[node] = self.bars.add_task(
                escape(literal(node).ljust(width)), total=chunks, chunks=chunks, ended=0, note="", start=False
            )

    def _share(self, event: dict[str, Any], share: float, note: str) -> None:
        """`share` of a chunk is finished."""
        node = event["node"]
        self._shares[node][event["key"]] = share
        self.bars.start_task(self._tasks[node])
        self.bars.update(self._tasks[node], completed=sum(self._shares[node].values()), note=note)

    def _end(self, event: dict[str, Any]) -> None:
        node, task = event["node"], self._tasks[event["node"]]
        self._share(event, 1.0, "")
        self._ended[node] += 1
        self.bars.update(task, ended=self._ended[node])
        if event["event"] == ChunkState.FAILED:
            self._say(f"failed: {node}: {event['error']}", style="red")
        if self._ended[node] == len(self._shares[node]) == self._total(task):
            self.bars.stop_task(task)
            if not self._console.is_terminal:
                self._say(f"{node}: {counted(self._ended[node], 'chunk')}")

    def _say(self, text: str, style: str | None = None) -> None:
        """A line above the bars, as it is."""
        self._console.print(literal_lines(text), style=style, markup=False, highlight=False, soft_wrap=True)

    def _total(self, task: TaskID) -> int:
        return self.bars.tasks[task].fields["chunks"]


class TuningDisplay:
    """A bar with the kernel that is being compiled and timed; nothing where there is no terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True, quiet=quiet)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[kernel]}"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self.bar.add_task("tuning", total=None, kernel="")

    def __enter__(self) -> TuningDisplay:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int, kernel: str) -> None:
        self.bar.update(self._task, completed=done, total=total or None, kernel=escape(literal(kernel)))


def _note(event: dict[str, Any]) -> str:
    """The values that a stage reports while it works, such as iterations and residuals."""
    values = {name: event[name] for name in ("restarts", "iterations", "residual") if name in event}
    return " ".join(f"{name} {value:.3g}" for name, value in values.items())

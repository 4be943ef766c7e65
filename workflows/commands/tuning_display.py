"""Progress of measuring kernels on the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


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
        self.bar.update(self._task, completed=done, total=total or None, kernel=kernel)

"""Trying again, after a pause, what met an error that may pass: a file server that is away for a while."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from pipeline.declare.coordinates import describe
from pipeline.declare.duration import duration_text
from pipeline.running.event_log import EventLog
from pipeline.running.graph import TaskPlan
from pipeline.worker.events import Event, EventKind
from pipeline.worker.task import PassingError


def described(error: BaseException) -> str:
    """An exception that a task raised, as a chunk's error."""
    return str(error) if isinstance(error, PassingError) else f"{type(error).__name__}: {error}"


PAUSES = (10.0, 40.0, 160.0)
"""Seconds before each later attempt: with an error of the infrastructure the first one is at once."""


class Retrying:
    """Tasks of a session that are tried again, with pauses that grow."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._times: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    def take(self, task: TaskPlan, error: BaseException, *, stopping: bool) -> bool:
        """True if a task that raised is to run once more; says so, unless that is left to the next run."""
        first, number = task.chunks[0], self._times[task.name]
        if not isinstance(error, PassingError) or (number >= len(PAUSES) and not stopping):
            return False
        if stopping:
            return True
        pause = PAUSES[number]
        self._times[task.name] += 1
        self._due[task.name] = time.monotonic() + pause
        which = f"{first.node.name} {describe(first.coordinates)}".rstrip()
        again = f"tried again in {duration_text(pause)} ({number + 1} of {len(PAUSES)})"
        self._log(Event(EventKind.NOTE, message=f"{which}: {error}; {again}"))
        return True

    def seconds_left(self, names: Sequence[str]) -> float:
        """Seconds until all of these tasks may be sent; 0 if nothing holds them up."""
        return max(0.0, max((self._due.get(name, 0.0) for name in names), default=0.0) - time.monotonic())

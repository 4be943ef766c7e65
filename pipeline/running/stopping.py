"""Reasons to end a run early: an interrupt, a termination request, a lost terminal, or its time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

from pipeline.declare.duration import duration_text
from pipeline.running.limits import LIMITS

CLOSING = 5.0
"""Seconds that a cluster takes at least to end workers that are still busy."""


class StopRequest:
    """Reasons to stop a run; `reason` is the first one, empty while the run may go on.

    A first signal asks for a clean end, a second one for an end without waiting for running chunks. Near the
    time limit no chunk is started that would, by the longest one so far, not finish in time.
    """

    def __init__(self, time_limit: float | None = None, grace: float = LIMITS.grace) -> None:
        self._limit = time_limit
        self._grace = grace
        self._started = time.monotonic()
        self._signals = 0
        self._asked: float | None = None
        self._longest = 0.0
        self._closing = 0.0
        self.reason = ""

    def ask(self, reason: str, *, grace: float | None = None) -> None:
        """Stop for this reason, unless there is one already."""
        if not self.reason:
            self.reason = reason
            self._asked = time.monotonic()
            self._grace = self._grace if grace is None else grace

    def note_duration(self, seconds: float) -> None:
        """Note how long a chunk took: none is begun that would not finish before the time limit."""
        self._longest = max(self._longest, seconds)

    def note_start(self, seconds: float) -> None:
        """Note how long the cluster took to start: its close is expected to take as long, or `CLOSING`."""
        expected = max(seconds, CLOSING)
        self._closing = expected if self._limit is None else min(expected, 0.25 * self._limit)

    def check(self) -> bool:
        """True if the run must stop."""
        if self._limit is not None and self._elapsed() > self._limit - self._margin() - self._closing:
            self.ask(f"time limit of {duration_text(self._limit)}", grace=self._margin())
        return bool(self.reason)

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _margin(self) -> float:
        assert self._limit is not None
        usable = max(0.0, self._limit - 2 * self._closing)
        return min(max(self._grace, 1.5 * self._longest), 0.5 * usable)

    def patience_is_over(self) -> bool:
        """True if running chunks need not be waited for any longer."""
        return self._signals > 1 or (self._asked is not None and time.monotonic() - self._asked > self._grace)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask for a stop; a second signal ends the wait for running chunks.

        A terminal that is lost says so twice, by its shell and by the system: that is one request.
        """
        if number != signal.SIGHUP or not self._signals:
            self._signals += 1
        self.ask(signal.Signals(number).name)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that ask for a clean end: of a person, a batch system, a terminal that is lost."""


def stop_signals() -> list[signal.Signals]:
    """`SIGNALS` that this process answers: a hang-up that is ignored since its start, by nohup, stays so."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in SIGNALS if number != signal.SIGHUP or not ignored]


def start_tracker() -> None:
    """Start the process in which Python's multiprocessing tracks resources: one that ignores a hang-up."""
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        resource_tracker.ensure_running()
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)


@contextmanager
def signals_to(stop: StopRequest) -> Iterator[None]:
    """`SIGNALS` ask for a stop while the block runs; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop.on_signal) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

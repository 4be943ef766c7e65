"""Plugins of Dask's workers: one ends a worker with its driver, one compares its code with the driver's."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psutil
from distributed import Worker, WorkerPlugin

from pipeline.worker.events import Event, EventKind
from pipeline.worker.sources import OtherCodeError, Sources

INTERVAL = 0.5
"""Seconds between two looks."""

PATIENCE = 60.0
"""Seconds that a worker elsewhere waits for a scheduler that it lost."""


class Watchdog(WorkerPlugin):
    """Plugin that ends a worker's process when its driver (same host) or scheduler (elsewhere) is gone.

    Also lets the driver alone decide what an interrupt from the keyboard or the loss of the terminal means:
    the terminal sends both to the workers as well.
    """

    name = "quarkline-watchdog"

    def __init__(self) -> None:
        self._host = socket.gethostname()
        self._pid = os.getpid()
        self._born = psutil.Process().create_time()

    def setup(self, worker: Worker) -> None:
        """Begin to watch."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        logging.getLogger("distributed.worker").addFilter(_not_said_by_the_run)
        worker.close = partial(_closed_once, worker.close)
        watch = self._watch_driver if socket.gethostname() == self._host else self._watch_scheduler
        threading.Thread(target=watch, args=(worker,), name="watchdog", daemon=True).start()

    def _watch_driver(self, worker: Worker) -> None:
        while self._driver_lives():
            time.sleep(INTERVAL)
        os._exit(1)

    def _driver_lives(self) -> bool:
        """The process id alone may have been given to another process since."""
        try:
            driver = psutil.Process(self._pid)
            return driver.create_time() == self._born and driver.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def _watch_scheduler(self, worker: Worker) -> None:
        lost_since = None
        while lost_since is None or time.monotonic() - lost_since < PATIENCE:
            lost = worker.batched_stream is None or worker.batched_stream.closed()
            lost_since = (lost_since or time.monotonic()) if lost else None
            time.sleep(INTERVAL)
        os._exit(1)


POOL_CLOSED = "ConnectionPool is closed"
"""What a worker says that is closed from two sides at a time, by its nanny and for a lost scheduler."""

SAID_BY_THE_RUN = (
    "Failed to communicate with scheduler during heartbeat",
    "Compute Failed",
    "Worker stream died during communication",
    POOL_CLOSED,
)
"""Complaints of Dask's workers, with tracebacks, about what a run says in a line and survives."""


async def _closed_once(close: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
    try:
        return await close(*args, **options)
    except RuntimeError as error:
        if str(error) != POOL_CLOSED:
            raise
        return None


def _not_said_by_the_run(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(SAID_BY_THE_RUN)


class CodeCheck(WorkerPlugin):
    """Plugin of each worker that is there or comes later: one of other code tells the run.

    It does not raise, which Dask would answer with a traceback: tasks compare again, and compute nothing.
    """

    def __init__(self, run: str, topic: str, sources: Sources) -> None:
        self.name = f"quarkline-code-{run}"
        self._topic, self._sources = topic, sources

    def setup(self, worker: Worker) -> None:
        """Compare."""
        try:
            self._sources.check()
        except OtherCodeError as error:
            worker.log_event(self._topic, Event(EventKind.REFUSED, error=str(error)).as_dict())

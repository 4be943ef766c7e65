"""The end of a worker: with its driver, or after its GPU's context was destroyed."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psutil
from distributed import Worker, WorkerPlugin

from stages.base.gpus import gpus_per_worker

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


DELAY = 0.5
"""Seconds in which the failure's report reaches the scheduler."""

_leaving = threading.Event()


def retire_if_broken(backend: str) -> None:
    """Make this worker leave soon if one of its GPUs answers no more after a failure."""
    if backend == "cuda" and not _devices_answer():
        retire()


def retire() -> None:
    """Make this worker leave soon, with all that it holds; its nanny starts another process."""
    if not _leaving.is_set():
        _leaving.set()
        threading.Timer(DELAY, os._exit, [1]).start()


def block_if_leaving() -> None:
    """Wait for the end of a leaving worker: its task is then run by another."""
    while _leaving.is_set():
        time.sleep(DELAY)


def _devices_answer() -> bool:
    """True if every GPU of this process does."""
    import cupy

    gpus = gpus_per_worker()
    if gpus == 1:
        return _device_answers()
    for gpu in range(gpus):
        with cupy.cuda.Device(gpu):
            if not _device_answers():
                return False
    return True


def _device_answers() -> bool:
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
        return bool(cupy.zeros(1).sum() == 0)
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError):
        return False


LOST_GPU = re.compile(
    r"(ecc_?uncorrectable|nvlink_?uncorrectable|device_?unavailable|devices_?unavailable"
    r"|peer_?access_?not_?enabled|error_?contained|gpu_is_lost)(?![a-z])",
    re.IGNORECASE,
)
"""Names, by CUDA's runtime, driver and NVML, of errors of a GPU or its link to another, not of a kernel."""


def lost_gpu(error: BaseException) -> bool:
    """True if an error, or the one that it was raised from, says that a GPU cannot be used any more."""
    if LOST_GPU.search(str(error)):
        return True
    return error.__cause__ is not None and lost_gpu(error.__cause__)

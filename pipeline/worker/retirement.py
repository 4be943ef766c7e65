"""A worker whose GPU context was destroyed by a failing kernel can compute nothing more: it leaves, and
Dask's nanny puts a fresh one in its place."""

from __future__ import annotations

import os
import threading
import time

DELAY = 0.5
"""Seconds in which the failure's report reaches the scheduler."""

_leaving = threading.Event()


def retire_if_broken(backend: str) -> None:
    """After a failure on a GPU: leave soon if the device answers no more."""
    if backend == "cuda" and not _device_answers() and not _leaving.is_set():
        _leaving.set()
        threading.Timer(DELAY, os._exit, [1]).start()


def wait_for_the_end() -> None:
    """A task that comes to a leaving worker waits, dies with it, and is run by another."""
    while _leaving.is_set():
        time.sleep(DELAY)


def _device_answers() -> bool:
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
        return bool(cupy.zeros(1).sum() == 0)
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError):
        return False

"""The end of a worker whose GPU's context was destroyed, or that is not to be trusted."""

from __future__ import annotations

import os
import re
import threading
import time

from stages.base.gpus import gpus_per_worker

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

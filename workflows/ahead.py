"""Preload of a Dask worker: what its first chunk would wait for is there before the driver sends it.

`QUARKLINE_AHEAD=my.yaml dask worker --preload workflows.ahead ...` imports the stages of that workflow and
opens the GPU, if there is one, while the driver starts and plans.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pipeline.worker.task  # noqa: F401 - for the first task
from pipeline.worker.gpu_counters import watch
from pipeline.worker.memory import device_pool
from stages.base.errors import InputError
from stages.base.gpus import imported_cupy
from workflows.catalogue import load_project

WORKFLOW = "QUARKLINE_AHEAD"
"""Variable with the workflow file."""


def dask_setup(worker: Any) -> None:
    """Prepare the process of a worker, before it tells the scheduler that it is there."""
    if file := os.environ.get(WORKFLOW):
        with suppress(InputError):  # the driver says what is wrong with it
            load_project(Path(file))
    _open_device()


def _open_device() -> None:
    """The context of the GPU, its pool and counter, and CUDA's libraries."""
    try:
        cupy = imported_cupy()
    except InputError:  # the driver says so where GPUs are asked for
        return
    if cupy.is_available():
        watch("cuda")
        device_pool("cuda")
        (cupy.zeros(2) + 1).get()

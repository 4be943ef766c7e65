"""Device time of a kernel wrapper, without the host's share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import Launch

Work = Callable[[], object]
Shape = TypeVar("Shape")

BATCH_SECONDS = 1e-3
MOST_CALLS = 100
"""Of a batch: with three kernels a call they fit into the queue of a stream."""

HOST_SECONDS = 30e-6
"""More than the host needs to start a call; the device is kept busy for that long per call of a batch."""

ROUNDS = 3
HOPELESS = 1.5
"""A shape that takes so many times the best one's time is not measured again."""

DELAY = Launch("delay.cu", "delay<0>", (1,), 1)


def batch_seconds(work: Work, calls: int) -> float:
    """Time per call of `calls` calls, between device events, of work that was started before."""
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    run(DELAY, np.uint64(1e9 * calls * HOST_SECONDS))
    start.record()
    for _ in range(calls):
        work()
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / 1e3 / calls


def fastest_times(
    shapes: Sequence[Shape], select: Callable[[Shape], object], work: Work
) -> dict[Shape, float]:
    """The shortest batch of the work in each shape, seconds per call; `select` sets the shape and works once.

    Rounds alternate between the shapes, so that all see the same clocks.
    """
    times: dict[Shape, float] = {}
    calls: dict[Shape, int] = {}
    for shape in shapes:
        select(shape)
        calls[shape] = max(2, min(MOST_CALLS, ceil(BATCH_SECONDS / batch_seconds(work, 2))))
        times[shape] = batch_seconds(work, calls[shape])
    for _ in range(ROUNDS):
        limit = HOPELESS * min(times.values())
        for shape in shapes:
            if times[shape] < limit:
                select(shape)
                times[shape] = min(times[shape], batch_seconds(work, calls[shape]))
    return times

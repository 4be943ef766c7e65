"""The machine that is measured: how a backend makes random fields, times and copies, what energy it draws."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil, prod
from statistics import median
from threading import Event, Thread
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np

from pipeline.worker.energy import Meter, energy_meter
from stages.base.errors import InputError
from stages.base.host_memory import available_memory
from stages.lqcd.kernels.dispatch import Array, gpu_library

Work = Callable[[], object]

HOST_SECONDS = 0.2
"""How long a kernel on the CPU is called again and again."""

HOST_COPY_BYTES = 1 << 29
DEVICE_COPY_BYTES = 1 << 32
DEVICE_BATCH_SECONDS = 2e-3
"""Long enough to hide the host, short enough not to heat the device."""

DEVICE_BATCHES = 7
ENERGY_SECONDS = 0.5
"""How long a kernel runs for its energy: several steps of the device's counter."""

LOOK = 5e-3
"""Seconds between two looks at a counter."""

Steps = list[tuple[float, float]]
"""Times, and what a counter of joules showed from then on."""


class Machine(ABC):
    """A backend on the machine at hand."""

    backend: str
    name: str
    xp: Any
    """`numpy` or `cupy`."""

    @abstractmethod
    def seconds(self, work: Work) -> float:
        """Time of one call of `work`, which warms up and compiles first."""

    @abstractmethod
    def copy_bandwidth(self) -> float:
        """GB/s, read and written, of a copy within the memory that fields live in."""

    def joules(self, work: Work, seconds: float) -> float | None:
        """Energy of one call that takes `seconds`; None where nothing measures it."""
        return None

    def wall_seconds(self, work: Work) -> float:
        """Time of a single call of work that uses the host as well, until the device is idle again."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    @abstractmethod
    def wait(self) -> None:
        """Return when nothing computes any more."""


class Host(Machine):
    """The CPU: as many threads as the kernels use."""

    backend = "cpu"
    xp = np

    def __init__(self) -> None:
        self.name = f"{llvm.get_host_cpu_name()}, {numba.get_num_threads()} threads"

    def seconds(self, work: Work) -> float:
        """The shortest of many calls: other programs only lengthen them."""
        work()
        times: list[float] = []
        while sum(times) < HOST_SECONDS or len(times) < 3:
            times.append(self.wall_seconds(work))
        return min(times)

    def wait(self) -> None:
        pass  # a call that has returned is over

    def copy_bandwidth(self) -> float:
        threads = numba.get_num_threads()
        source, target = (np.ones(HOST_COPY_BYTES, np.uint8) for _ in range(2))
        sources, targets = np.array_split(source, threads), np.array_split(target, threads)
        with ThreadPoolExecutor(threads) as pool:
            seconds = self.seconds(lambda: list(pool.map(np.copyto, targets, sources)))
        return 2 * HOST_COPY_BYTES / seconds / 1e9


class Device(Machine):
    """The current CUDA device. Raises InputError where there is none."""

    backend = "cuda"

    def __init__(self) -> None:
        self.xp = cupy = gpu_library()
        self.device = cupy.cuda.Device()
        self.name = cupy.cuda.runtime.getDeviceProperties(self.device.id)["name"].decode()
        meter = energy_meter("cuda")
        self.meters: list[Meter] = [meter] if meter else []

    def seconds(self, work: Work) -> float:
        """Median of batches of calls between device events."""
        self._batch(work, 1)
        calls = max(1, ceil(DEVICE_BATCH_SECONDS / self._batch(work, 2)))
        return median(self._batch(work, calls) for _ in range(DEVICE_BATCHES))

    def _batch(self, work: Work, calls: int) -> float:
        start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record()
        for _ in range(calls):
            work()
        stop.record()
        stop.synchronize()
        return self.xp.cuda.get_elapsed_time(start, stop) / 1e3 / calls

    def wait(self) -> None:
        self.device.synchronize()

    def joules(self, work: Work, seconds: float) -> float | None:
        """Energy of one call among calls that follow each other, None without a counter.

        Power between the first and the last step of each counter, times the time of a call.
        """
        if not self.meters:
            return None
        calls, total, began = max(1, ceil(LOOK / seconds)), 0, time.perf_counter()
        with watched(self.meters) as steps:
            while (passed := time.perf_counter() - began) < ENERGY_SECONDS or min(map(len, steps)) < 3:
                if passed > 10 * ENERGY_SECONDS:
                    return None  # a counter stands still
                for _ in range(calls):
                    work()
                self.wait()
                total += calls
        power = sum((after - before) / (end - start) for (_, (start, before), *_, (end, after)) in steps)
        return power * passed / total

    def copy_bandwidth(self) -> float:
        source = self.xp.zeros(DEVICE_COPY_BYTES, np.uint8)
        target, stream = self.xp.empty_like(source), self.xp.cuda.get_current_stream()
        seconds = self.seconds(
            lambda: target.data.copy_from_device_async(source.data, DEVICE_COPY_BYTES, stream)
        )
        return 2 * DEVICE_COPY_BYTES / seconds / 1e9


@contextmanager
def watched(meters: list[Meter]) -> Iterator[list[Steps]]:
    """While the block runs, a thread adds the steps of each counter, after where it stood at first."""
    steps = [[(time.perf_counter(), meter())] for meter in meters]
    over = Event()

    def watch() -> None:
        while not over.wait(LOOK):
            for meter, seen in zip(meters, steps, strict=True):
                if (reading := meter()) != seen[-1][1]:
                    seen.append((time.perf_counter(), reading))

    thread = Thread(target=watch, name="steps of energy counters", daemon=True)
    thread.start()
    try:
        yield steps
    finally:
        over.set()
        thread.join()


def machine_of(backend: str) -> Machine:
    """The machine at hand by its backend. Raises InputError."""
    if backend not in ("cpu", "cuda"):
        raise InputError(f"backend must be 'cpu' or 'cuda', got {backend!r}")
    return Host() if backend == "cpu" else Device()


def random_field(machine: Machine, shape: tuple[int, ...], dtype: Any, seed: int = 2718) -> Array:
    """Complex numbers with both parts uniform in [-1, 1).

    Raises MemoryError where the host has no room for it and for what a kernel makes of it.
    """
    size, free = 2 * prod(shape) * np.dtype(dtype).itemsize, available_memory()
    if machine.xp is np and size > free:  # the host grants more than it has, and kills who uses it
        raise MemoryError(f"{size / 1e9:.1f} GB are needed next, {free / 1e9:.1f} GB are free")
    real = np.dtype(dtype).type(0).real.dtype
    parts = machine.xp.random.default_rng(seed).random((*shape[:-1], 2 * shape[-1]), dtype=real)
    parts *= 2
    parts -= 1
    return parts.view(dtype)


def fastest(machine: Machine, work: Work, calls: int = 3) -> float:
    """Wall time of the shortest of some calls, after one that compiles."""
    work()
    return min(machine.wall_seconds(work) for _ in range(calls))

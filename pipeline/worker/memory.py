"""Memory of a worker, on the host and on a GPU.

By default glibc asks the system for the memory of every large array and returns it with the array. Pages that
come from the system are cleared first, which takes longer than most kernels that then fill them. So a CPU
worker uses again what a task's fields leave, until the chunk ends.

Of a GPU, what CuPy's pool has taken from the device is counted, blocks that it keeps for reuse included, and
the parts of fields that lie on several GPUs: what is mapped there and not in use is given back where memory
is short. The context and the compiled kernels come on top.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from stages.base.gpus import gpus_per_worker, listeners, mapped

T = TypeVar("T")

REUSING = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Environment in which glibc keeps freed memory: one heap for all threads that does not shrink by itself."""


def trim_heap() -> None:
    """Return all memory of the host that nothing uses to the system, where the C library can."""
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def device_pool(backend: str) -> DevicePool | None:
    """CuPy's pool of this process with its high-water mark; None on the CPU."""
    return _process_pool() if backend == "cuda" else None


class DevicePool:
    """An allocator of CuPy that remembers how much memory of each GPU of this process was taken.

    pool: of CuPy. gpus: that this process owns, its first ones.
    """

    def __init__(self, pool: Any, gpus: int = 1) -> None:
        self._pool, self._gpus = pool, gpus
        self.each = [0] * gpus
        """Bytes of each GPU at most."""

    @property
    def bytes(self) -> int:
        """Bytes of the GPU of which most was taken."""
        return max(self.each)

    def restart(self) -> None:
        """Begin new high-water marks at what is taken now."""
        self.each = [0] * self._gpus
        self.look()

    def look(self) -> None:
        """Take into account what is taken now."""
        spread = _on_gpus(self._gpus, "used_bytes_of_parts")
        taken = [own + shared for own, shared in zip(self._on_each(self._total), spread, strict=True)]
        self.each = [max(before, now) for before, now in zip(self.each, taken, strict=True)]

    def release_unused(self) -> None:
        """Return all memory that nothing uses to the GPUs; waits for them."""
        for memory in mapped:
            memory.release()
        self._on_each(self._pool.free_all_blocks)

    def free(self) -> int:
        """Bytes that can still be taken of the GPU that has least."""
        return min(
            own + shared
            for own, shared in zip(
                self._on_each(self._free), _on_gpus(self._gpus, "free_bytes_of_parts"), strict=True
            )
        )

    def malloc(self, size: int) -> Any:
        """Allocate from the pool, as CuPy's allocator; where memory is short, after all that nothing uses."""
        try:
            memory = self._pool.malloc(size)
        except MemoryError:
            if not mapped:
                raise
            self.release_unused()
            memory = self._pool.malloc(size)
        gpu = _current() if self._gpus > 1 else 0
        shared = _on_gpus(self._gpus, "used_bytes_of_parts")[gpu] if mapped else 0
        self.each[gpu] = max(self.each[gpu], self._pool.total_bytes() + shared)
        return memory

    def _total(self) -> int:
        return int(self._pool.total_bytes())

    def _free(self) -> int:
        import cupy

        return int(cupy.cuda.Device().mem_info[0]) + int(self._pool.free_bytes())

    def _on_each(self, ask: Callable[[], T]) -> list[T]:
        """Answers for each GPU, which is the current one then."""
        if self._gpus == 1:
            return [ask()]
        import cupy

        answers = []
        for gpu in range(self._gpus):
            with cupy.cuda.Device(gpu):
                answers.append(ask())
        return answers


def _current() -> int:
    import cupy

    return int(cupy.cuda.get_device_id())


def _on_gpus(gpus: int, count: str) -> list[int]:
    """Bytes of memory that lies on several GPUs, on each of them."""
    on_each = [0] * gpus
    for memory in mapped:
        for gpu, size in zip(memory.devices, getattr(memory, count), strict=True):
            on_each[gpu] += size
    return on_each


@cache
def _process_pool() -> DevicePool:
    import cupy

    peak = DevicePool(cupy.get_default_memory_pool(), gpus_per_worker())
    cupy.cuda.set_allocator(peak.malloc)
    listeners.append(peak.look)
    return peak


def host_peak() -> Callable[[], int | None]:
    """Begin a high-water mark of this process's memory on the host, as Linux counts it.

    Returns what reads its bytes: None where it cannot be begun anew.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return lambda: None
    return _high_water


def _high_water() -> int | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return None

"""Memory of a worker, on the host and on a GPU.

By default glibc asks the system for the memory of every large array and returns it with the array. Pages that
come from the system are cleared first, which takes longer than most kernels that then fill them. So a CPU
worker uses again what a task's fields leave, until the chunk ends.

Of a GPU, what CuPy's pool has taken from the device is counted, blocks that it keeps for reuse included. The
context and the compiled kernels come on top.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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
    """An allocator of CuPy that remembers how large its pool was."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.bytes = 0

    def restart(self) -> None:
        """Begin a new high-water mark at what the pool holds now."""
        self.bytes = self._pool.total_bytes()

    def release_unused(self) -> None:
        """Return all blocks of the pool that nothing uses to the device; waits for the device."""
        self._pool.free_all_blocks()

    def free(self) -> int:
        """Bytes of the device that can still be taken."""
        import cupy

        return int(cupy.cuda.Device().mem_info[0]) + int(self._pool.free_bytes())

    def malloc(self, size: int) -> Any:
        """Allocate from the pool, as CuPy's allocator."""
        memory = self._pool.malloc(size)
        self.bytes = max(self.bytes, self._pool.total_bytes())
        return memory


@cache
def _process_pool() -> DevicePool:
    import cupy

    peak = DevicePool(cupy.get_default_memory_pool())
    cupy.cuda.set_allocator(peak.malloc)
    return peak


class HostPeak:
    """High-water mark of this process's memory on the host, as Linux counts it."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # begins the mark anew
        except OSError:
            self.known = False
        else:
            self.known = True

    def bytes(self) -> int | None:
        """The mark since this was made; None where it cannot be begun anew."""
        return _high_water() if self.known else None


def _high_water() -> int | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return None

"""The most memory of a GPU that a chunk's work held at a time.

Counted is what CuPy's pool has taken from the device, blocks that it keeps for reuse included. The context
and the compiled kernels come on top.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def device_pool(backend: str) -> DevicePool | None:
    """The counter of this process; None on the CPU."""
    return _process_pool() if backend == "cuda" else None


class DevicePool:
    """An allocator of CuPy that remembers how large its pool was."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.bytes = 0

    def restart(self) -> None:
        """Forget what was before; what the pool holds now counts."""
        self.bytes = self._pool.total_bytes()

    def give_back(self) -> None:
        """To the device, all blocks of the pool that nothing uses; waits for the device."""
        self._pool.free_all_blocks()

    def free(self) -> int:
        """Bytes of the device that can still be taken."""
        import cupy

        return int(cupy.cuda.Device().mem_info[0]) + int(self._pool.free_bytes())

    def malloc(self, size: int) -> Any:
        memory = self._pool.malloc(size)
        self.bytes = max(self.bytes, self._pool.total_bytes())
        return memory


@cache
def _process_pool() -> DevicePool:
    import cupy

    peak = DevicePool(cupy.get_default_memory_pool())
    cupy.cuda.set_allocator(peak.malloc)
    return peak

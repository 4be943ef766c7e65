"""Memory of a CPU worker: what a task's fields leave is used again, until the chunk ends.

By default glibc asks the system for the memory of every large array and returns it with the array. Pages that
come from the system are cleared first, which takes longer than most kernels that then fill them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

REUSING = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Environment in which glibc keeps freed memory: one heap for all threads that does not shrink by itself."""


def give_back() -> None:
    """Return all memory of the host that nothing uses to the system, where the C library can."""
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)

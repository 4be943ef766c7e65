"""What a worker keeps between tasks: results of resident stages, bounded in bytes, keyed by content."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from threading import Lock
from typing import Any

from distributed.system import MEMORY_LIMIT

DEVICE_SHARE = 0.4
HOST_SHARE = 0.4
"""Of the memory that this process may use, whatever the driver's machine has."""


class ResidentCache:
    """Least recently used results go first. A result larger than the bound is not kept: `declines` says so.

    Keys are chunk keys, so an entry is never stale, whatever runs the worker has served since.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The result under `key`, made and kept if it is not there."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        value = make()
        self._keep(key, value)
        return value

    def declines(self, value: Any) -> bool:
        """Whether a result is larger than all that is kept together."""
        return nbytes(value) > self.limit

    def _keep(self, key: str, value: Any) -> None:
        if self.declines(value):
            return
        size = nbytes(value)
        with self._lock:
            self.used -= self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            self.used += size
            while self.used > self.limit:
                _, (_, freed) = self._entries.popitem(last=False)
                self.used -= freed


def nbytes(value: Any) -> int:
    """Bytes of all arrays in a result: array, tuple, list, mapping, dataclass or plain object."""
    return _nbytes(value, set())


def _nbytes(value: Any, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if hasattr(value, "dtype") and hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(_nbytes(item, seen) for item in value.values())
    if isinstance(value, (tuple, list)):
        return sum(_nbytes(item, seen) for item in value)
    return sum(_nbytes(item, seen) for item in getattr(value, "__dict__", {}).values())


_caches: dict[int, ResidentCache] = {}


def process_cache(limit: int, backend: str) -> ResidentCache:
    """The cache of this process, made by the first run that it serves; a run has one bound.

    A batch job may have less memory than the driver's machine: the bound is at most `HOST_SHARE` of what this
    process may use. On a GPU, results may lie in its memory: then also at most `DEVICE_SHARE` of that.
    """
    bound = min(limit, int(HOST_SHARE * MEMORY_LIMIT))
    if backend == "cuda":
        bound = min(bound, int(DEVICE_SHARE * _device_memory()))
    if bound not in _caches:
        _caches.clear()
        _caches[bound] = ResidentCache(bound)
    return _caches[bound]


@cache
def _device_memory() -> int:
    import cupy

    return int(cupy.cuda.Device().mem_info[1])

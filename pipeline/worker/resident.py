"""Results of resident stages that a worker keeps between tasks, bounded in bytes, keyed by content."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

from pipeline.worker.checks import arrays_of
from stages.base.gpus import gpus_per_worker
from stages.base.host_memory import MEMORY_LIMIT

DEVICE_SHARE = 0.5
HOST_SHARE = 0.4
"""Of the GPU's and of the host's memory that this process may use, whatever the driver's machine has."""


class ResidentCache:
    """Cache of results, bounded in bytes: the least recently used go first, one beyond the bound is declined.

    Keys are chunk keys, so an entry is never stale, whatever runs the worker has served since. An array that
    several results hold counts once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Bytes of all results in the cache."""
        return nbytes(list(self._entries.values()))

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The result under `key`, made and kept if it is not there.

        One that is there is measured anew, for it may have grown: an operator packs its links when it is
        first applied.
        """
        with self._lock:
            held = key in self._entries
            value = self._entries.get(key)
        if not held:
            value = make()
        self._keep(key, value)
        return value

    def declines(self, value: object) -> bool:
        """True if a result is larger than all that is kept together."""
        return nbytes(value) > self.limit

    def make_room(self, enough: Callable[[], bool]) -> None:
        """Drop results, the least recently used first, until there is `enough` memory or nothing left."""
        with self._lock:
            while self._entries and not enough():
                self._entries.popitem(last=False)

    def _keep(self, key: str, value: object) -> None:
        with self._lock:
            self._entries.pop(key, None)
            if self.declines(value):
                return
            self._entries[key] = value
            while self.used > self.limit:
                self._entries.popitem(last=False)


def nbytes(value: object) -> int:
    """Bytes of all arrays in a result, without those of working memory (`pipeline.worker.checks`)."""
    return sum(int(array.nbytes) for _, array in arrays_of(value, _has_bytes))


def _has_bytes(value: object) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "nbytes")


_caches: dict[tuple[str, int], ResidentCache] = {}


def process_cache(limit: int | None, backend: str) -> ResidentCache:
    """The cache of one process for results that stages of a backend made: on the host, or on its GPU.

    It is made by the first run that it serves; a run has one bound: `limit`, but at most `HOST_SHARE` or
    `DEVICE_SHARE` of the memory in which these results lie (a batch job may have less than the driver's
    machine); None is that share.
    """
    share = int(DEVICE_SHARE * _device_memory() if backend == "cuda" else HOST_SHARE * MEMORY_LIMIT)
    bound = share if limit is None else min(limit, share)
    if (backend, bound) not in _caches:
        for other in [place for place in _caches if place[0] == backend]:
            del _caches[other]
        _caches[backend, bound] = ResidentCache(bound)
    return _caches[backend, bound]


def drop_all() -> None:
    """Drop all results that this process keeps."""
    _caches.clear()


@cache
def _device_memory() -> int:
    """Bytes of all GPUs of this process, which are of one size."""
    import cupy

    return gpus_per_worker() * int(cupy.cuda.Device().mem_info[1])

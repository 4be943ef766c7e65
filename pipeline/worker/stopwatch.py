"""Seconds of the stages that a chunk is made of, each without those that it waits for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from pipeline.worker.work import NodeWork

PROCESS = token_hex(4)
"""Names this process among the workers of a store."""

_earlier: Counter[str] = Counter()


def earlier(stage: str) -> int:
    """Number of times that this process has run a stage before; counts this one."""
    _earlier[stage] += 1
    return _earlier[stage] - 1


class Stopwatch:
    """Seconds by name; what runs within something else is not counted there."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[NodeWork, float]] = {}
        self._within: list[float] = []

    @contextmanager
    def running(self, node: NodeWork) -> Iterator[None]:
        """Time a stage's function."""
        began = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            elapsed = time.perf_counter() - began
            own = elapsed - self._within.pop()
            if self._within:
                self._within[-1] += elapsed
            self._seconds[node.name] = (node, self._seconds.get(node.name, (node, 0.0))[1] + own)

    def take(self) -> list[tuple[NodeWork, float]]:
        """The nodes that ran since the last call, with their seconds; first that ended first."""
        taken = list(self._seconds.values())
        self._seconds.clear()
        return taken

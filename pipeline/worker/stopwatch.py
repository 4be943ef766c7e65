"""Seconds of the stages that a chunk is made of, each without those that it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex

from pipeline.worker.work import NodeWork
from stages.base.compilation import Kernels, add, taken

PROCESS = token_hex(4)
"""Names this process among the workers of a store."""

_ran: set[str] = set()


def first_in_process(name: str) -> bool:
    """True at the first call with a name in this process."""
    first = name not in _ran
    _ran.add(name)
    return first


@dataclass
class Lap:
    """A stage's part of a chunk."""

    node: NodeWork
    seconds: float = 0.0
    """With those of its kernels, without those of what ran within."""
    kernels: dict[str, Kernels] = field(default_factory=dict)
    """What was compiled or read meanwhile, by kind."""
    first: bool = False
    """Whether this process had not run the stage before."""


class Stopwatch:
    """Seconds by name; what runs within something else is not counted there."""

    def __init__(self) -> None:
        self._laps: dict[str, Lap] = {}
        self._within: list[tuple[float, dict[str, Kernels]]] = []
        """Of each stage that runs, outermost first: seconds within it of others, kernels of its own."""
        self._outside: dict[str, Kernels] = {}

    @contextmanager
    def running(self, node: NodeWork) -> Iterator[None]:
        """Time a stage's function."""
        first, began = first_in_process(node.stage.name), time.perf_counter()
        self._note_kernels()
        self._within.append((0.0, {}))
        try:
            yield
        finally:
            self._note_kernels()
            elapsed = time.perf_counter() - began
            others, kernels = self._within.pop()
            if self._within:
                seconds, outer = self._within[-1]
                self._within[-1] = seconds + elapsed, outer
            lap = self._laps.setdefault(node.name, Lap(node))
            lap.seconds += elapsed - others
            add(kernels, lap.kernels)
            lap.first |= first

    def take(self) -> tuple[list[Lap], dict[str, Kernels]]:
        """The stages that ran since the last call, first that ended first; kernels got outside of them."""
        self._note_kernels()
        laps, outside = list(self._laps.values()), self._outside
        self._laps, self._outside = {}, {}
        return laps, outside

    def _note_kernels(self) -> None:
        """What this thread got since the last call is that of the innermost stage."""
        add(taken(), self._within[-1][1] if self._within else self._outside)

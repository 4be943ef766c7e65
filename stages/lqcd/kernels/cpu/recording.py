"""Compiled calls, and the note of those that a step comes down to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Implementation, around_kernels

Argument: TypeAlias = NDArray | np.generic | float


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the compiled function at an address, for so many items from so many threads.

    launch: of its arguments' types (`stages.lqcd.kernels.cpu.compiled`).
    """

    launch: Callable[..., int]
    address: int
    items: int
    threads: int
    arguments: tuple[Argument, ...]

    def __call__(self) -> None:
        self.launch(self.address, self.items, self.threads, 0, self.arguments)

    def laid(self, room: int) -> tuple[int, int, int, int]:
        """Lay the arguments at an address; taker, place, items and threads of the call from there."""
        taker = self.launch(self.address, self.items, self.threads, room, self.arguments)
        return taker, room, self.items, self.threads


_record: list[Call] | None = None
"""Calls of the step that is being recorded."""


def done(call: Call) -> None:
    """Do a compiled call, and note it where a step is recorded."""
    if _record is not None:
        _record.append(call)
    call()


def recorded(step: Callable[[], None]) -> list[Call]:
    """The calls of a step, which is done; none if it calls kernels of another package, as the oracle's."""
    global _record
    package, foreign = __name__.rpartition(".")[0], []

    def noted(implementation: Implementation) -> Implementation:
        if implementation.__module__.rpartition(".")[0] != package:
            foreign.append(implementation)
        return implementation

    before, _record = _record, []
    try:
        with around_kernels(noted):
            step()
        return [] if foreign else _record
    finally:
        _record = before

"""A step that is repeated as the compiled calls that it comes down to.

On a small lattice the checks, choices and arrays of a call of a kernel take as long as the kernel. A step
that works on the same arrays again and again needs them once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stages.lqcd.kernels.dispatch import around_kernels

Call = Callable[[], None]

_record: list[Call] | None = None
"""Calls of the step that is being recorded."""


def done(call: Call) -> None:
    """Do a compiled call, and note it where a step is recorded."""
    if _record is not None:
        _record.append(call)
    call()


class Recorded:
    """A step whose second and later calls are the compiled calls of the first.

    They keep the arrays that they were given, and work on what these then hold. A step that calls kernels of
    another package than this one, as the oracle's, stays as it is.
    """

    def __init__(self, step: Call) -> None:
        self._step = step
        self._calls: list[Call] = []

    def __call__(self) -> None:
        if not self._calls:
            self._calls = _recorded(self._step)
            return
        for call in self._calls:
            call()


def _recorded(step: Call) -> list[Call]:
    """The calls of a step, which is done, or the step alone."""
    global _record
    package, foreign = __name__.rpartition(".")[0], []

    def noted(implementation: Callable[..., Any]) -> Callable[..., Any]:
        if implementation.__module__.rpartition(".")[0] != package:
            foreign.append(implementation)
        return implementation

    before, _record = _record, []
    try:
        with around_kernels(noted):
            step()
        return [step] if foreign else _record
    finally:
        _record = before

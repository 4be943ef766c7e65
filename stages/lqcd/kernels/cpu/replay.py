"""A step that is repeated as one compiled call.

On a small lattice the checks, choices and arrays of a call of a kernel take as long as the kernel. A step
that works on the same arrays again and again needs them once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.calling import ROOM, call_loop
from stages.lqcd.kernels.cpu.compiled import array_type, compiled_control, thread_loop
from stages.lqcd.kernels.cpu.recording import Call, recorded


class Recorded:
    """A step whose second and later calls are the compiled calls of the first, in one.

    They keep the arrays that they were given, and work on what these then hold. A step that calls kernels of
    another package than this one, as the oracle's, stays as it is.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._calls: list[Call] | None = None
        self._rooms = np.empty((0, ROOM), np.uint8)
        self._table = np.empty((0, 4), np.int64)

    def __call__(self) -> None:
        if len(self._table):
            _replay()(thread_loop(), self._table)
        elif self._calls is None:
            self._calls = recorded(self._step)
            self._rooms = np.empty((len(self._calls), ROOM), np.uint8)
            rooms = zip(self._calls, self._rooms, strict=True)
            rows = [call.laid(room.ctypes.data) for call, room in rooms]
            self._table = np.array(rows, np.int64).reshape(-1, 4)
        else:
            self._step()


@cache
def _replay() -> Callable[..., None]:
    def replay(loop: int, table: NDArray) -> None:
        for k in range(len(table)):
            call_loop(loop, table[k, 0], table[k, 1], table[k, 2], table[k, 3])

    return compiled_control(replay, "replay", types.void(types.intp, array_type("i8", 2)))

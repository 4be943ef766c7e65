"""A step that is repeated as one compiled call, and many of conjugate gradients in one.

On a small lattice the checks, choices and arrays of a call of a kernel take as long as the kernel. A step
that works on the same arrays again and again needs them once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf

import numpy as np
from numba import types
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cpu.cg_update import PAP, R2, TARGET2
from stages.lqcd.kernels.cpu.compiled import ROOM, array_type, call_loop, compiled_control, thread_loop
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

    def burst(
        self,
        coefficients: CGCoefficients,
        ceiling2: NDArray[np.float64],
        delta: float,
        reports: NDArray[np.float64],
    ) -> int:
        numbers = coefficients.numbers
        if not len(self._table):
            self()
            reports[0] = numbers[:2, : coefficients.rhs]
            np.maximum(ceiling2, coefficients.r2, out=ceiling2)
            return 1
        return _burst()(thread_loop(), self._table, numbers, ceiling2, delta, reports)


@cache
def _replay() -> Callable[..., None]:
    def replay(loop: int, table: NDArray) -> None:
        for k in range(len(table)):
            call_loop(loop, table[k, 0], table[k, 1], table[k, 2], table[k, 3])

    return compiled_control(replay, "replay", types.void(types.intp, array_type("i8", 2)))


@cache
def _burst() -> Callable[..., int]:
    def burst(
        loop: int, table: NDArray, numbers: NDArray, ceiling2: NDArray, delta: float, reports: NDArray
    ) -> int:
        rhs = len(ceiling2)
        for done in range(len(reports)):
            ends = False
            for n in range(rhs):
                reports[done, 0, n] = numbers[R2, n]
            for k in range(len(table)):
                call_loop(loop, table[k, 0], table[k, 1], table[k, 2], table[k, 3])
            for n in range(rhs):
                active = reports[done, 0, n] > numbers[TARGET2, n]
                r2, pap = numbers[R2, n], numbers[PAP, n]
                reports[done, 0, n], reports[done, 1, n] = r2, pap
                ceiling2[n] = max(ceiling2[n], r2)
                still_open = r2 > numbers[TARGET2, n]
                ends |= still_open != active or not r2 < inf or (active and not 0 < pap < inf)
                ends |= still_open and r2 < delta * delta * ceiling2[n]
            if ends:
                return done + 1
        return len(reports)

    arrays = [array_type("f8", dimensions, writable=True) for dimensions in (2, 1)]
    signature = types.intp(
        types.intp, array_type("i8", 2), *arrays, types.float64, array_type("f8", 3, writable=True)
    )
    return compiled_control(burst, "cg_burst", signature)

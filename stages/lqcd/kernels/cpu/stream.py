"""Streams on the host, where everything is done at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.replay import Recorded
from stages.lqcd.kernels.dispatch import kernels_are_watched


class Reports:
    """Values that a loop sent, received in their order."""

    def __init__(self) -> None:
        self._sent: deque[NDArray[np.float64]] = deque()

    def send(self, values: NDArray) -> None:
        self._sent.append(values.copy())

    def receive(self) -> NDArray[np.float64]:
        return self._sent.popleft()

    def discard(self) -> None:
        self._sent.clear()


def reports(like: NDArray) -> Reports:
    return Reports()


def lag() -> int:
    return 0


def surely(conditions: NDArray) -> bool:
    return bool(conditions.all())


def finish(like: NDArray) -> None:
    """Everything is done at once."""


def narrowing(widths: Sequence[int]) -> AbstractContextManager[None]:
    return nullcontext()


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    return step


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    return step if kernels_are_watched() else Recorded(step)


def replayed(function: Callable[[NDArray], NDArray]) -> Callable[[NDArray], NDArray]:
    return function

"""Work that is queued, and small results that come back: on the host everything is done at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, to_host

LAG = 0
"""Steps that a solver should start ahead of the report that it reads, so that nobody waits for the other."""


class Reports:
    """Small float64 arrays of one shape, sent by a device and received by the host in the order sent.

    A solver that sends one at the end of each step and receives one when `LAG` more steps are queued keeps a
    device busy: it decides on numbers that are `LAG` steps old.
    """

    def __init__(self, like: Array) -> None:
        self._sent: deque[NDArray[np.float64]] = deque()

    def send(self, values: Array) -> None:
        """Queue a copy of `values`, shaped like the array given at the start; returns at once."""
        self._sent.append(np.array(to_host(values)))

    def receive(self) -> NDArray[np.float64]:
        """The oldest report not yet received, once it is there; at most `LAG` + 1 may be on the way."""
        return self._sent.popleft()

    def discard(self) -> None:
        """Forget what is on the way."""
        self._sent.clear()


def surely(conditions: Array) -> bool:
    """Whether all conditions hold, if that is known without waiting; False if it is not."""
    return bool(conditions.all())


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    """`step`, made cheap to start again and again on a device that can replay queued work.

    A step has no arguments, works on the same arrays each time, which its owner keeps alive, does not look at
    their values on the host, and allocates nothing on the device.
    """
    return step


def replayed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function` of one array, made cheap to call again and again on a device that can replay queued work.

    It depends on nothing but its argument and arrays that never change, does not look at values on the host,
    and its result is a new array; it may allocate what it likes. The replay's result is overwritten by the
    next call.
    """
    return function

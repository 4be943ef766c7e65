"""Work that is queued, and small results that come back: on the host everything is done at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, kernel


class Reports(Protocol):
    """Small float64 arrays of one shape, sent by a device and received by the host in the order sent.

    A solver that sends one at the end of each step and receives one when `lag` more steps are queued keeps a
    device busy: it decides on numbers that are `lag` steps old.
    """

    def send(self, values: Array) -> None:
        """Queue a copy of `values`, shaped like the array given at the start; returns at once."""

    def receive(self) -> NDArray[np.float64]:
        """The oldest report not yet received, once it has arrived; at most `lag` + 1 may be on the way."""

    def discard(self) -> None:
        """Forget what is on the way."""


def reports(like: Array) -> Reports:
    """Reports shaped like a float64 array, from where it lives."""
    return kernel("stream.reports", type(like))(like)


def lag(xp: ModuleType) -> int:
    """Steps that a solver should start ahead of the report that it reads, so that neither side waits."""
    return kernel("stream.lag", xp.ndarray)()


def surely(conditions: Array) -> bool:
    """True if all conditions hold and that is known without waiting."""
    return kernel("stream.surely", type(conditions))(conditions)


def finish(like: Array) -> None:
    """Return when the work queued where this array lives, and for it elsewhere, is done."""
    kernel("stream.finish", type(like))(like)


def narrowing(widths: Sequence[int], xp: ModuleType) -> AbstractContextManager[None]:
    """A context in which blocks may narrow to these widths: what that needs is made ready meanwhile."""
    return kernel("stream.narrowing", xp.ndarray)(widths)


def repeated(step: Callable[[], None], xp: ModuleType) -> Callable[[], None]:
    """`step`, made cheap to start again and again on a device that can replay queued work.

    A step has no arguments, works on the same arrays of `xp` each time, which its owner keeps alive, does not
    look at their values on the host, and allocates nothing on the device.
    """
    return kernel("stream.repeated", xp.ndarray)(step)


def recorded(step: Callable[[], None], xp: ModuleType) -> Callable[[], None]:
    """`step` as `repeated` makes it; on the host, too, it works by compiled kernels alone.

    On arrays of the host the first call notes these, and the others are nothing else; where kernels are
    watched (`stages.lqcd.kernels.dispatch.around_kernels`) or the oracle's, every call is the step.
    """
    return kernel("stream.recorded", xp.ndarray)(step)


def replayed(function: Callable[[Array], Array], xp: ModuleType) -> Callable[[Array], Array]:
    """`function` of one array of `xp`, made cheap to call again and again on a device that can replay work.

    It depends on nothing but its argument and arrays that never change, does not look at values on the host,
    and its result is a new array; it may allocate what it likes. The replay's result is overwritten by the
    next call.
    """
    return kernel("stream.replayed", xp.ndarray)(function)

"""Power of a device from records, in three regimes: bytes move, kernels are started, or neither.

    joules = moving watts * seconds in which passes move bytes
           + starting watts * seconds that passes take without their bytes
           + waiting watts * all other seconds

The others are those in which the host reads, sums, and compiles kernels. Records tell one factor of the watts
that are expected of a device, and about it one for each regime, as far as their chunks differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np

from pipeline.reading.forecast.estimate import Estimate, Numbers, factors

WATTS = {"cpu": (150.0, 150.0, 100.0), "cuda": (800.0, 250.0, 125.0)}
"""Moving, starting and waiting, before any record: of a processor, and of an H200.

Solves of 16^4 to 24^3 x 32 drew 450 to 680 W there, 120 to 130 W were drawn beside them
(docs/notes/forecast.md). The first number is more than the board's 700 W, as kernels are started while bytes
move: a pass takes less than the sum of both.
"""

WIDTHS = (0.1, 0.25, 0.25)
"""Of the watts of each regime, as a share of what is expected."""

SCATTER, KNOWN = 0.1, 0.15
"""Of a chunk's joules, and of the logarithm of those that are forecast."""

COUNTED = 0.1
"""Seconds after which an H200's counter moves."""


def regimes(worked: Numbers, seconds: float) -> Numbers:
    """Seconds of all three regimes. worked: those of the first two, as far as there are so many."""
    moving = min(worked[0], seconds)
    starting = min(worked[1], seconds - moving)
    return np.array([moving, starting, seconds - moving - starting])


def watts(chunks: Sequence[tuple[Numbers, float]], backend: str) -> Numbers:
    """Power in each regime, from the seconds of chunks in each, and joules."""
    seconds, joules = np.array([each for each, _ in chunks]), np.array([drawn for _, drawn in chunks])
    usual = seconds * WATTS[backend]
    common = joules.sum() / usual.sum()
    allowed = np.hypot(SCATTER * joules, COUNTED * WATTS[backend][-1])
    return common * factors(common * usual, joules, allowed, WIDTHS)[0] * WATTS[backend]


def joules(power: Numbers, worked: Numbers, seconds: Estimate) -> Estimate:
    """Energy of so many seconds."""
    return Estimate(float(power @ regimes(worked, seconds.value)), hypot(KNOWN, seconds.sigma))

"""Power of a device from records, in three regimes: bytes move, kernels are started, or neither.

    joules = moving watts * seconds in which passes move bytes
           + starting watts * seconds that passes take without their bytes
           + waiting watts * all other seconds

The others are those in which the host reads, sums, and compiles kernels. The watts have normal priors on
their logarithms: records of little work leave the first near its own, those of nothing but work the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

WATTS = {"cpu": (150.0, 150.0, 100.0), "cuda": (800.0, 250.0, 125.0)}
"""Moving, starting and waiting, before any record: of a processor, and of an H200.

Solves of 16^4 to 24^3 x 32 drew 450 to 680 W there, 120 to 130 W were drawn beside them (docs/forecast.md).
The first number is more than the board's 700 W, as kernels are started while bytes move: a pass takes less
than the sum of both.
"""

WIDTHS = np.array([0.1, 0.25, 0.25])
"""Standard deviations of the logarithms of the prior."""

SCATTER = 0.1
"""Of the logarithm of a chunk's joules."""

COUNTED = 0.1
"""Seconds after which an H200's counter moves."""


class Regimes(NamedTuple):
    """Seconds of a part of a chunk in which bytes move, and in which kernels are started."""

    moving: float = 0.0
    starting: float = 0.0

    def plus(self, other: Regimes) -> Regimes:
        """Both together."""
        return Regimes(self.moving + other.moving, self.starting + other.starting)

    def times(self, factor: float) -> Regimes:
        """So many times these."""
        return Regimes(factor * self.moving, factor * self.starting)

    def within(self, seconds: float) -> tuple[float, float, float]:
        """Seconds of all three regimes."""
        moving = min(self.moving, seconds)
        starting = min(self.starting, seconds - moving)
        return moving, starting, seconds - moving - starting


@dataclass(frozen=True)
class Power:
    """Watts of a device in the three regimes, and the standard deviation of the logarithm of joules."""

    watts: tuple[float, float, float]
    sigma: float = 0.15

    def joules(self, regimes: Regimes, seconds: float) -> float:
        """Energy of so many seconds."""
        return sum(w * s for w, s in zip(self.watts, regimes.within(seconds), strict=True))


def power(chunks: Sequence[tuple[Regimes, float, float]], backend: str) -> Power:
    """Fit to chunks (regimes, all seconds, joules)."""
    spent = np.array([regimes.within(seconds) for regimes, seconds, _ in chunks])
    joules = np.array([joules for *_, joules in chunks])
    center = np.log(WATTS[backend])
    allowed = np.hypot(SCATTER * joules, COUNTED * WATTS[backend][-1])

    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.concatenate([(spent @ np.exp(logs) - joules) / allowed, (logs - center) / WIDTHS])

    moving, starting, waiting = np.exp(least_squares(residuals, center).x)
    return Power((float(moving), float(starting), float(waiting)))

"""Effective masses of two-point functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def effective_mass(correlator: ArrayLike) -> NDArray[np.float64]:
    """m(t) = arccosh { [C(t - 1) + C(t + 1)] / [2 C(t)] } along the last axis, ``[..., time]``.

    Exactly m for A exp(-m t) + B exp(m t), of any A and B, so also for the cosh of a periodic lattice. NaN at
    both ends, where a neighbour is missing, and where the quotient is below 1, as noise may have it.
    """
    c = np.asarray(correlator, float)
    mass = np.full(c.shape, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        mass[..., 1:-1] = np.arccosh((c[..., :-2] + c[..., 2:]) / (2 * c[..., 1:-1]))
    return mass


def without_oscillation(correlator: ArrayLike) -> NDArray[np.float64]:
    """[C(t - 1) + 2 C(t) + C(t + 1)] / 4 of a periodic correlator along the last axis, ``[..., time]``.

    A state of mass m is the same up to the factor (1 + cosh m) / 2, and keeps its effective mass; the
    staggered partner (-1)^t exp(-m t) gets the factor (1 - cosh m) / 2.
    """
    c = np.asarray(correlator, float)
    return (np.roll(c, 1, axis=-1) + 2 * c + np.roll(c, -1, axis=-1)) / 4

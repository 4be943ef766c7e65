"""Numbers with their uncertainty, and factors between what was expected and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A positive number with the standard deviation of its logarithm."""

    value: float
    sigma: float = 0.0

    def times(self, other: Estimate) -> Estimate:
        """The product of independent estimates."""
        return Estimate(self.value * other.value, hypot(self.sigma, other.sigma))


def added(parts: Sequence[Estimate]) -> Estimate:
    """The sum of independent estimates."""
    total = sum(each.value for each in parts)
    spread = hypot(*(each.value * each.sigma for each in parts)) if parts else 0.0
    return Estimate(total, spread / total if total else 0.0)


def factors(
    expected: Numbers, measured: Numbers, allowed: Numbers, widths: ArrayLike
) -> tuple[Numbers, Numbers]:
    """Factors of terms, one for each column of `expected`, with which rows add up to what was measured.

    Least squares of factors that are at least 0. allowed: deviations of what was measured. widths: deviations
    of the factors from 1, which hold where rows tell nothing. Returned are the factors and their covariance.
    """
    own = np.diag(1 / np.asarray(widths))
    rows = np.vstack([expected / allowed[:, None], own])
    found, _ = scipy.optimize.nnls(rows, np.concatenate([measured / allowed, own.sum(axis=1)]))
    return found, np.linalg.inv(rows.T @ rows).astype(np.float64)

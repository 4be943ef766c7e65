"""Error budget of a loop as noise vectors are added: sloppy solves, correction, gauge noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ErrorBudget(NamedTuple):
    """Root mean square errors of one loop value on one configuration, float64."""

    vectors: NDArray[np.int64]
    """Numbers N of noise vectors, 1 ... N_max, ``[count]``."""
    sloppy: NDArray[np.float64]
    """sqrt(var(sloppy) / N), ``[count]``."""
    correction: float
    """sqrt(var(fine - sloppy) / N_f) of the N_f vectors that were measured; NaN for fewer than two."""
    gauge: float
    """Spread of the loop over configurations, noise taken off: more noise vectors than bring `sloppy` below
    it gain little. Zero where the noise hides it.
    """


def error_budget(sloppy: ArrayLike, correction: ArrayLike) -> ErrorBudget:
    """Budget from loops ``[config, noise, ...]`` and corrections ``[config, N_f, ...]``.

    Averaged over the other axes.
    """
    loops, corrections = np.asarray(sloppy, float), np.asarray(correction, float)
    vectors = np.arange(1, loops.shape[1] + 1)
    noise = _variance(loops, axis=1)
    spread = _variance(loops.mean(axis=1), axis=0) - noise / loops.shape[1]
    return ErrorBudget(
        vectors,
        np.sqrt(noise / vectors),
        float(np.sqrt(_variance(corrections, axis=1) / corrections.shape[1])),
        float(np.sqrt(max(spread, 0.0))),
    )


def _variance(values: NDArray[np.float64], axis: int) -> float:
    """Sample variance along an axis, averaged over the others; NaN where there is only one value."""
    return float(values.var(axis=axis, ddof=1).mean()) if values.shape[axis] > 1 else float("nan")

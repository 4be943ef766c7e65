"""Costs of estimators of loops for a given stochastic error, from measurements of a run.

The error at fixed gauge fields falls with the number of noise vectors as
`stages.lqcd.analysis.stochastic_error` says; work is that of the vectors, in proportion, and work done once
per configuration (eigenvectors, exact low modes), which every number of vectors shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from stages.lqcd.analysis.stochastic_error import (
    NoiseMoments,
    correlator_variance,
    loop_variance,
    noise_moments,
)
from stages.lqcd.estimators.truncated import Piece

MOST = 1e9
"""Times the measured noise vectors, beyond which no error is looked for."""


@dataclass(frozen=True)
class EstimatorCost:
    """One estimator of one flavour: moments of its noise, and seconds per configuration.

    moments: means over configurations, those of C(t) over 1 <= t <= T / 2 too. counts: noise vectors of each
    piece (sloppy; fine); seconds: what those took. once: what does not grow with them.
    """

    moments: NoiseMoments
    counts: tuple[int, ...]
    seconds: float
    once: float

    @classmethod
    def of(cls, pieces: Sequence[Sequence[Piece]], seconds: float, once: float) -> EstimatorCost:
        """Cost from the pieces of each configuration.

        Raises InputError for fewer than 4 vectors of a piece.
        """
        counts = tuple(len(piece.noise) for piece in pieces[0])
        loops, linear, quadratic = (
            np.mean(parts, axis=0) for parts in zip(*map(noise_moments, pieces), strict=True)
        )
        window = slice(1, linear.shape[-1] // 2 + 1)
        of_window = (part[..., window].mean(axis=-1) for part in (linear, quadratic))
        return cls(NoiseMoments(loops, *of_window), counts, seconds, once)

    def work(self, factor: float = 1.0) -> float:
        """Seconds per configuration with `factor` times the noise vectors."""
        return self.once + factor * self.seconds

    def loop_error(self, factor: float = 1.0) -> float:
        """Error of one spatial J_i(t) on a configuration, root mean square over i, t and configurations."""
        counts = [factor * count for count in self.counts]
        return float(np.sqrt(loop_variance(self.moments.loops, counts)))

    def correlator_error(self, factor: float = 1.0) -> float:
        """Error of C(t) on a configuration, root mean square over 1 <= t <= T / 2 and configurations."""
        counts = [factor * count for count in self.counts]
        return float(np.sqrt(correlator_variance(self.moments, counts)))

    def work_for(self, error: float) -> float:
        """Seconds per configuration for this error of C(t); infinite beyond `MOST` times the vectors."""
        least = 1.001 / min(self.counts)  # a pair takes more than one vector

        def excess(log_factor: float) -> float:
            return np.log(self.correlator_error(np.exp(log_factor)) / error)

        if self.correlator_error(least) <= error:
            return self.work(least)
        if self.correlator_error(MOST) > error:
            return np.inf
        return self.work(float(np.exp(scipy.optimize.brentq(excess, np.log(least), np.log(MOST)))))

    def curve(self, factors: Iterable[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds per configuration and errors of C(t) at multiples of the measured noise vectors."""
        points = [(self.work(factor), self.correlator_error(factor)) for factor in factors]
        work, errors = np.array(points).T
        return work, errors

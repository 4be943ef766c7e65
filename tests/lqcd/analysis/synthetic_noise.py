"""Loops with noise of known covariance: a fixed mean, sloppy values with a bias, corrections that undo it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.estimators.truncated import Piece, truncated_pieces

DIRECTIONS, TIMES = 4, 12


@dataclass(frozen=True)
class SyntheticLoops:
    """J = mean + noise; the sloppy values differ from the fine ones by a bias and noise of their own.

    mean: ``[direction, time]``. noise, own: standard deviations of a value. skewed: exponential noise instead
    of normal, which no Gaussian formula knows of.
    """

    mean: NDArray[np.float64]
    noise: float = 1.0
    own: float = 0.3
    bias: float = 0.2
    skewed: bool = False

    def pieces(self, rng: np.random.Generator, vectors: int, fine: int) -> tuple[Piece, ...]:
        """Sloppy values of `vectors`, corrections of the first `fine`; 0: none."""
        exact = self.mean + self.noise * self.draw(rng, vectors)
        own = self.own * self.draw(rng, vectors)
        sloppy = Piece(tuple(range(vectors)), exact + own + self.bias)
        return truncated_pieces(sloppy, Piece(tuple(range(fine)), exact[:fine]) if fine else None)

    def draw(self, rng: np.random.Generator, vectors: int) -> NDArray[np.float64]:
        """Noise of variance 1, neighbouring times correlated."""
        shape = (vectors, DIRECTIONS, TIMES)
        raw = rng.exponential(size=shape) - 1 if self.skewed else rng.normal(size=shape)
        return (raw + 0.5 * np.roll(raw, 1, axis=-1)) / np.sqrt(1.25)


def waving(scale: float) -> SyntheticLoops:
    """A mean that varies with direction and time, of this size."""
    grid = np.add.outer(np.arange(DIRECTIONS), np.arange(TIMES))
    return SyntheticLoops(scale * np.cos(1.3 * grid + 0.4))

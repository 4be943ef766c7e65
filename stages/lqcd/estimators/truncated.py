"""Truncated solver method (arXiv:0910.3970): many sloppy solves, and few fine ones that remove their bias.

A trace is estimated as the sum of two pieces, mean_n(sloppy_n) over all noise vectors and mean_n(fine_n -
sloppy_n) over the few with both. The sloppy values that are subtracted are the stored ones of those
vectors, so that the sum has exactly the expectation of the fine estimate, however the sloppy solver
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError


@dataclass(frozen=True)
class Piece:
    """One term of an estimate, per noise vector: the vectors' numbers, and `values` ``[noise, ...]``."""

    noise: tuple[int, ...]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(set(self.noise)) != len(self.noise) or len(self.noise) != len(self.values):
            raise ValueError(
                f"{len(self.values)} values need as many distinct noise numbers, got {self.noise}"
            )

    def rows(self, noise: Sequence[int]) -> NDArray[np.float64]:
        """The values of these noise vectors, in this order; InputError where one was not measured."""
        missing = sorted(set(noise) - set(self.noise))
        if missing:
            raise InputError(
                f"noise vectors {missing} are missing from one side of a difference taken on the same noise: "
                "measure both sides on the same vectors"
            )
        return self.values[[self.noise.index(number) for number in noise]]

    def minus(self, other: Piece) -> Piece:
        """The difference on this piece's noise vectors, all of which `other` must have."""
        return Piece(self.noise, self.values - other.rows(self.noise))


class Estimate(NamedTuple):
    """A mean over noise vectors and its standard error, both of the shape of one value."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]


def truncated_pieces(sloppy: Piece, fine: Piece | None) -> tuple[Piece, ...]:
    """The sloppy piece and its correction, fine - sloppy on the fine noise vectors; one without these."""
    return (sloppy,) if fine is None else (sloppy, fine.minus(sloppy))


def plain_estimate(values: NDArray[np.float64]) -> Estimate:
    """Mean and error of the mean of independent values ``[noise, ...]``; InputError for fewer than two."""
    _check_vectors(len(values))
    return Estimate(values.mean(axis=0), np.sqrt(values.var(axis=0, ddof=1) / len(values)))


def truncated_estimate(sloppy: Piece, correction: Piece) -> Estimate:
    """mean(sloppy) + mean(correction), with the error of both and of their correlation.

    The N_f vectors that carry a correction enter as s_n / N + c_n / N_f, the other N - N_f as s_n / N, all
    independent:  error^2 = N_f var(s / N + c / N_f) + (N - N_f) var(s) / N^2. With N_f = N it is that of
    the fine values alone. Raises InputError where either piece has fewer than two vectors.
    """
    _check_vectors(len(sloppy.noise))
    _check_vectors(len(correction.noise))
    vectors, corrected = len(sloppy.noise), len(correction.noise)
    both = sloppy.rows(correction.noise) / vectors + correction.values / corrected
    variance = corrected * both.var(axis=0, ddof=1)
    variance += (vectors - corrected) / vectors**2 * sloppy.values.var(axis=0, ddof=1)
    return Estimate(sloppy.values.mean(axis=0) + correction.values.mean(axis=0), np.sqrt(variance))


def estimate(pieces: Sequence[Piece]) -> Estimate:
    """The estimate of a loop's pieces: plain of one, truncated of sloppy and correction."""
    if len(pieces) == 1:
        return plain_estimate(pieces[0].values)
    check_pieces(pieces)
    sloppy, correction = pieces
    return truncated_estimate(sloppy, correction)


def check_pieces(pieces: Sequence[Piece]) -> None:
    """Raises InputError where there is none."""
    if not pieces:
        raise InputError("a loop has at least one piece, got none: give its noise vectors' values")


def _check_vectors(count: int) -> None:
    if count < 2:
        raise InputError(
            f"an error over noise needs at least 2 noise vectors, got {count}: add noise vectors"
        )

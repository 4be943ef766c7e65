"""The truncated solver combination: limits, bias, and whether the quoted error is the spread."""

import numpy as np
import pytest

from stages.lqcd.estimators.truncated import Piece, plain_estimate, truncated_estimate, truncated_pieces
from support.refusals import refuses


def draw(rng, vectors, fine_on, bias=0.5, noise=0.1):
    """Fine values around 2, sloppy ones with a bias and a little noise of their own."""
    fine = 2.0 + rng.normal(size=vectors)
    sloppy = Piece(tuple(range(vectors)), fine + bias + noise * rng.normal(size=vectors))
    return fine, truncated_pieces(sloppy, Piece(tuple(fine_on), fine[list(fine_on)]))


def test_with_every_vector_fine_it_is_the_fine_estimate():
    fine, pieces = draw(np.random.default_rng(21), 7, range(7))
    estimate, plain = truncated_estimate(*pieces), plain_estimate(fine)
    assert np.isclose(estimate.mean, plain.mean, rtol=1e-14)
    assert np.isclose(estimate.error, plain.error, rtol=1e-13)


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_unbiased_and_its_quoted_error_is_its_spread(noise):
    rng = np.random.default_rng(23)
    draws = [truncated_estimate(*draw(rng, 12, (0, 1, 2), noise=noise)[1]) for _ in range(4000)]
    means, errors = np.array(draws).T
    assert abs(means.mean() - 2.0) < 4 * means.std() / np.sqrt(4000)
    assert np.isclose(np.sqrt(np.mean(errors**2)), means.std(), rtol=4 * np.sqrt(1 / 4000))


def test_refusals():
    _, (sloppy, correction) = draw(np.random.default_rng(24), 4, (1,))
    refuses("at least 2 noise vectors, got 1", truncated_estimate, sloppy, correction)
    refuses(r"noise vectors \[9\] are missing", truncated_pieces, sloppy, Piece((1, 9), np.zeros(2)))
    with pytest.raises(ValueError, match="as many distinct noise numbers"):
        Piece((1, 1), np.zeros(2))

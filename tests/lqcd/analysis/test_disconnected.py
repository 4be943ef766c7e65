"""The pair estimator of the disconnected correlator: against brute force, and against a known mean."""

from itertools import product

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.analysis.disconnected import disconnected_correlator, pair_correlation, time_correlation
from stages.lqcd.estimators.truncated import Piece, truncated_pieces

T = 6


def random_piece(rng, noise):
    return Piece(tuple(noise), rng.normal(size=(len(noise), 4, T)))


def test_time_correlation_by_its_definition():
    a, b = np.random.default_rng(11).normal(size=(2, 4, T))
    for t in range(T):
        expected = sum(a[:, (t0 + t) % T] * b[:, t0] for t0 in range(T)) / T
        assert np.allclose(time_correlation(a, b)[:, t], expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("noise_a", "noise_b"),
    [(range(5), range(5)), (range(5), (1, 3)), ((7, 2, 4), (4, 9, 7, 1)), ((2, 3), (5, 6))],
)
def test_formula_equals_the_mean_over_pairs_of_different_vectors(noise_a, noise_b):
    rng = np.random.default_rng(12)
    a, b = random_piece(rng, noise_a), random_piece(rng, noise_b)
    pairs = [
        time_correlation(a.values[i], b.values[j])
        for (i, n), (j, m) in product(enumerate(noise_a), enumerate(noise_b))
        if n != m
    ]
    assert np.allclose(pair_correlation(a, b), np.mean(pairs, axis=0), rtol=0, atol=1e-13)


def test_correlator_is_the_brute_force_sum_over_pieces_and_spatial_directions():
    rng = np.random.default_rng(13)
    pieces = [random_piece(rng, range(4)), random_piece(rng, (0, 2))]
    expected = np.zeros(T)
    for a, b in product(pieces, pieces):
        pairs = [(i, j) for (i, n), (j, m) in product(enumerate(a.noise), enumerate(b.noise)) if n != m]
        for (i, j), direction in product(pairs, range(3)):
            expected += time_correlation(a.values[i, direction], b.values[j, direction]) / len(pairs) / 3
    assert np.allclose(disconnected_correlator(pieces), expected, atol=1e-13)


def test_unbiased_where_the_naive_product_is_not():
    """Loops j(t) + noise, correlated between sloppy and fine: the mean over draws is j's correlator."""
    rng = np.random.default_rng(14)
    true = rng.normal(size=(4, T))
    expected = time_correlation(true, true)[:3].mean(axis=0)
    sloppy_bias = 0.3 * rng.normal(size=(4, T))
    draws, means = [], []
    for _ in range(3000):
        fine = true + rng.normal(size=(6, 4, T))
        sloppy = Piece(tuple(range(6)), fine + sloppy_bias + 0.2 * rng.normal(size=fine.shape))
        draws.append(disconnected_correlator(truncated_pieces(sloppy, Piece((1, 4), fine[[1, 4]]))))
        means.append(fine.mean(axis=0))
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(np.mean(draws, axis=0) - expected) < 4 * error)
    naive = time_correlation(np.array(means), np.array(means))[:, :3].mean(axis=(0, 1))
    assert naive[0] - expected[0] > 10 * error[0]


def test_refuses_a_piece_without_pairs():
    rng = np.random.default_rng(16)
    with pytest.raises(InputError, match="got 1 vector: take at least 2"):
        disconnected_correlator([random_piece(rng, range(4)), random_piece(rng, (0,))])

"""Counts at least cost: against Neyman's closed form, against all counts, within limits."""

from itertools import product
from math import sqrt

import numpy as np
import pytest

from stages.lqcd.analysis.allocation import (
    GROWTH,
    MARGIN,
    Limits,
    VarianceModel,
    least_cost,
    next_counts,
    surplus,
)

FREE = Limits((2, 2), (100_000, 100_000), 1)


def model(sloppy, correction, covariance=0.0, quadratic=0.0):
    """Of sloppy and correction; the quadratic part as that of loops with these variances."""
    linear = np.array([[sloppy, covariance], [covariance, correction]])
    return VarianceModel(linear, quadratic * np.einsum("ac,bd->abcd", linear, linear))


@pytest.mark.parametrize(("correction", "price"), [(0.04, 3.0), (0.3, 9.0), (0.001, 1.5)])
def test_linear_variance_gives_neymans_counts(correction, price):
    """N ~ sqrt(a / k), scaled to the target, whole and to the step."""
    error = 0.03
    found = least_cost(model(1.0, correction), (1.0, price), error, FREE)
    scale = (1 + sqrt(correction * price)) / error**2
    sloppy, fine = scale, scale * sqrt(correction / price)
    assert found.counts == pytest.approx((sloppy, fine), rel=2 / 64 + 2 / fine)
    assert found.error <= error
    assert found.cost == pytest.approx(sloppy + price * fine, rel=0.02)


def test_cheapest_of_all_counts_with_both_orders_of_the_noise():
    """1/N and 1/N^2 terms, correlated pieces: no other counts reach the target for less."""
    this, costs, error = model(1.0, 0.15, covariance=-0.05, quadratic=3.0), (1.0, 4.0), 0.32
    everything = [c for c in product(range(2, 60), repeat=2) if c[1] <= c[0]]
    reaching = [c for c in everything if this.variance(c) <= error**2]
    best = min(c[0] + 4 * c[1] for c in reaching)
    found = least_cost(this, costs, error, Limits((2, 2), (60, 60), 1))
    assert found.counts in reaching and found.cost <= 1.05 * best


def test_one_piece_and_three():
    one = VarianceModel(np.array([[2.0]]), np.zeros((1, 1, 1, 1)))
    assert least_cost(one, (1.0,), 0.1, Limits((4,), (10_000,), 4)).counts == pytest.approx((200,), abs=4)
    three = VarianceModel(np.diag([1.0, 0.1, 0.01]), np.zeros((3, 3, 3, 3)))
    counts = least_cost(three, (1.0, 4.0, 16.0), 0.02, Limits((2, 2, 2), (10**5,) * 3, 1)).counts
    shares = np.array(counts) / np.sqrt(np.diag(three.linear) / np.array([1.0, 4.0, 16.0]))
    assert shares / shares[0] == pytest.approx(np.ones(3), rel=0.05)


def test_sloppy_solves_that_are_worth_nothing():
    """A correction as noisy as the loop itself is measured on every vector."""
    counts = least_cost(model(1.0, 1.2, covariance=-0.6), (1.0, 2.0), 0.1, FREE).counts
    assert counts[0] == pytest.approx(counts[1], rel=0.05)


def test_counts_are_whole_chunks_within_the_limits():
    limits = Limits((8, 4), (32, 16), 4)
    found = least_cost(model(1.0, 0.04), (1.0, 3.0), 0.3, limits)
    assert all(count % 4 == 0 for count in found.counts) and found.error <= 0.3
    assert least_cost(model(1.0, 0.04), (1.0, 3.0), 1e-9, limits).counts == (32, 16)


def test_a_round_that_falls_short_spends_nothing_in_vain():
    """Sloppy vectors are at the round's limit, or at `most`: more fine ones would hardly help, and cost."""
    this = model(1.0, 1e-4)
    assert next_counts(this, (1.0, 3.0), 0.05, (8, 4), 4, 10**4, 4).counts == (8 * GROWTH, 4)
    assert next_counts(this, (1.0, 3.0), 0.05, (100, 4), 4, 102, 4).counts == (100, 4)
    assert next_counts(this, (1.0, 3.0), 0.05, (100, 4), 4, 50, 4).counts == (100, 4)


def test_fine_vectors_make_up_for_sloppy_ones_at_the_limit():
    """Not the cheapest way to the target, but within `most` the only one."""
    this, costs = model(1.0, 0.5), (1.0, 30.0)
    cheapest = next_counts(this, costs, 0.14, (64, 32), 4, 10**4, 4)
    limited = next_counts(this, costs, 0.14, (64, 32), 4, 100, 4)
    assert cheapest.counts[0] > 100 >= limited.counts[0]
    assert limited.counts[1] > cheapest.counts[1] and limited.error <= 0.14


def test_surplus_shrinks_with_what_is_known():
    assert surplus((8, 4), 1) == MARGIN
    assert surplus((200, 100), 8) == pytest.approx(sqrt(2 / (99 * 8)))
    found = next_counts(model(1.0, 0.0), (1.0, 3.0), 0.1, (100, 100), 8, 10**4, 1)
    assert found.counts[0] == pytest.approx(100 * (1 + sqrt(2 / (99 * 8))), rel=0.02)


def test_hidden_gauge_noise_halves_the_variance():
    this = model(1.0, 0.04)
    found = next_counts(this, (1.0, 3.0), 0.0, (16, 8), 4, 10**4, 4)
    assert found.error**2 == pytest.approx(this.variance((16, 8)) / 2, rel=0.2)

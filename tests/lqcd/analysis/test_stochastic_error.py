"""The variance of C(t) over the noise: against simulated scatter, for one and for two pieces."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_noise import TIMES, waving

from stages.lqcd.analysis.disconnected import SPATIAL, disconnected_correlator, time_correlation
from stages.lqcd.analysis.estimator_cost import EstimatorCost
from stages.lqcd.analysis.stochastic_error import (
    NoiseMoments,
    correlator_variance,
    loop_variance,
    noise_deviations,
    noise_moments,
    pair_deviations,
    pair_variance,
    total_variance,
)
from stages.lqcd.estimators.truncated import Piece, estimate, truncated_estimate
from support.refusals import refuses


def average(draws):
    """Moments averaged over repetitions, as over configurations."""
    return NoiseMoments(*(np.mean(parts, axis=0) for parts in zip(*draws, strict=True)))


def scatter(loops, rng, counts, draws):
    """Variance of C(t) over repetitions."""
    return np.var([disconnected_correlator(loops.pieces(rng, *counts)) for _ in range(draws)], axis=0)


def held(counts):
    return [count for count in counts if count]


@pytest.mark.parametrize("counts", [pytest.param((5, 0), marks=pytest.mark.slow), (12, 5)])
@pytest.mark.parametrize("scale", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_predicted_variance_is_the_scatter(counts, scale):
    """Where the mean loop vanishes all of it is from pairs, where it is large most is linear in the noise."""
    rng, loops = np.random.default_rng(31), replace(waving(scale), bias=0.0)
    moments = average([noise_moments(loops.pieces(rng, *counts)) for _ in range(120)])
    ratio = correlator_variance(moments, held(counts)) / scatter(loops, rng, counts, 800)
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.15)
    assert np.all(np.abs(ratio - 1) < 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(4, 0), (5, 0), (6, 4), (12, 5), (9, 9)])
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("skewed", [False, True])
def test_predicted_variance_is_the_scatter_for_many_counts(counts, scale, skewed):
    rng, loops = np.random.default_rng(37), replace(waving(scale), skewed=skewed)
    moments = average([noise_moments(loops.pieces(rng, *counts)) for _ in range(1000)])
    ratio = correlator_variance(moments, held(counts)) / scatter(loops, rng, counts, 5000)
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.2 if skewed else 0.1)


def test_quoted_errors_of_single_configurations_by_chi_squared():
    """Each from its own 16 vectors."""
    rng, loops = np.random.default_rng(39), replace(waving(1.0), bias=0.0)
    exact = time_correlation(loops.mean, loops.mean)[SPATIAL].mean(axis=0)
    samples = [loops.pieces(rng, 16, 0) for _ in range(250)]
    missed = np.array([disconnected_correlator(pieces) - exact for pieces in samples])
    quoted = np.array([correlator_variance(noise_moments(pieces), [16]) for pieces in samples])
    assert 0.55 < np.mean(missed**2 / quoted) < 1.3


@pytest.mark.parametrize(
    ("vectors", "scale"), [(12, 0.0), pytest.param(24, 0.1, marks=pytest.mark.slow), (12, 2.0)]
)
def test_errors_of_configurations_are_the_scatter(vectors, scale):
    """Where noise exceeds the loop, and where not: of single configurations, and of means over four."""
    rng, loops = np.random.default_rng(61), replace(waving(scale), bias=0.0)
    samples = [loops.pieces(rng, vectors, 0) for _ in range(200)]
    window = slice(1, TIMES // 2 + 1)
    true = np.sqrt(scatter(loops, rng, (vectors, 0), 1000)[window].mean())
    singly = [correlator_variance(noise_moments(pieces), [vectors]) for pieces in samples]
    assert np.sqrt(np.mean([variance[window] for variance in singly])) == pytest.approx(true, rel=0.1)
    assert np.min(singly) > 0
    fours = [EstimatorCost.of(samples[k : k + 4], 1.0, 0.0) for k in range(0, 200, 4)]
    averaged = np.mean([cost.correlator_error() ** 2 for cost in fours])
    assert np.sqrt(averaged) == pytest.approx(true, rel=0.1)


def test_moments_of_pairs_have_no_bias():
    """From 4 vectors each, on the average, what very many give."""
    rng = np.random.default_rng(41)
    few = average([noise_moments(waving(0.5).pieces(rng, 4, 4)) for _ in range(250)]).quadratic
    many = noise_moments(waving(0.5).pieces(rng, 300, 300)).quadratic
    assert np.mean(few[0, 0, 0, 0] / many[0, 0, 0, 0]) == pytest.approx(1.0, abs=0.2)
    assert np.mean(few[0, 1, 0, 1] / many[0, 1, 0, 1]) == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
def test_moments_of_pilots_predict_other_counts():
    """Of more sloppy vectors, and of fine ones."""
    wanted = (24, 12)
    rng, loops = np.random.default_rng(43), waving(0.5)
    moments = average([noise_moments(loops.pieces(rng, 12, 8)) for _ in range(120)])
    ratio = correlator_variance(moments, wanted) / scatter(loops, rng, wanted, 800)
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.2)


def test_loops_as_the_truncated_estimate():
    pieces = waving(1.0).pieces(np.random.default_rng(47), 9, 4)
    error = truncated_estimate(*pieces).error[SPATIAL]
    found = loop_variance(noise_moments(pieces).loops, (9, 4))
    assert found == pytest.approx(np.mean(error**2), rel=0.5)  # covariances over all or the fine vectors
    equal = waving(1.0).pieces(np.random.default_rng(47), 9, 9)
    error = truncated_estimate(*equal).error[SPATIAL]
    assert loop_variance(noise_moments(equal).loops, (9, 9)) == pytest.approx(np.mean(error**2), rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "scale"),
    [pytest.param((12, 0), 1.0, marks=pytest.mark.slow), ((12, 5), 1.0), ((12, 0), 0.0)],
)
def test_noise_of_sums_over_times(counts, scale):
    """Neighbouring times are correlated: errors in quadrature are 0.5 to 1.5 times that."""
    rng, loops = np.random.default_rng(71), replace(waving(scale), bias=0.0)
    weights = np.where(np.arange(TIMES) < 7, 1.0, 0.0)
    found = []
    for _ in range(150):
        pieces = loops.pieces(rng, *counts)
        error = np.sqrt(correlator_variance(noise_moments(pieces), held(counts)))
        found.append(((pair_deviations(pieces, error) @ weights) ** 2).sum())
    sums = np.var([disconnected_correlator(loops.pieces(rng, *counts)) @ weights for _ in range(800)])
    assert np.mean(found) == pytest.approx(sums, rel=0.3)


@pytest.mark.parametrize("counts", [(9, 4), (9, 9), (9, 0)])
def test_deviations_have_the_errors_of_estimates(counts):
    pieces = waving(1.0).pieces(np.random.default_rng(47), *counts)
    found = np.sqrt((noise_deviations(pieces) ** 2).sum(axis=0))
    np.testing.assert_allclose(found, estimate(pieces).error, rtol=1e-12)


def test_one_piece_has_the_textbook_weight():
    """2 G / (N (N - 1)), and C(t) = C(T - t) has the same error at both."""
    moments = noise_moments(waving(0.0).pieces(np.random.default_rng(53), 7, 0))
    expected = 2 * moments.quadratic[0, 0, 0, 0] / (11 * 10)
    assert pair_variance(moments.quadratic, (11,)) == pytest.approx(expected, rel=1e-13)
    assert np.array_equal(moments.linear[..., 1], moments.linear[..., TIMES - 1])


def test_variances_that_are_estimated_below_zero() -> None:
    """2 G / (N (N - 1)) = -1 / 6 of pairs, whose size bounds the sum."""
    below = np.full((1,) * 4, -1.0)
    assert total_variance(below[0, 0], below, (4,), 0.3) == pytest.approx(0.05)
    assert loop_variance(below[0, 0], (4,)) == 0


def test_refusals():
    pieces = waving(0.0).pieces(np.random.default_rng(59), 6, 3)
    refuses("at least 4 noise vectors, got 3", noise_moments, pieces)
    strange = Piece((0, 1, 2, 7), np.zeros((4, 4, TIMES)))
    refuses(r"noise vectors \[7\] of a correction are not among", noise_moments, [pieces[0], strange])

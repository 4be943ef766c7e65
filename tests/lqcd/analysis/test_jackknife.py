"""Resampled errors against closed forms."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.analysis.jackknife import (
    bin_means,
    bootstrap_error,
    bootstrap_samples,
    few_degrees_of_freedom,
    jackknife_covariance,
    jackknife_error,
    jackknife_samples,
)

RNG = np.random.default_rng(90210)


def test_error_of_a_mean_is_the_standard_error():
    data = RNG.normal(size=(11, 2, 5))
    samples = jackknife_samples(data)
    assert np.allclose(samples.mean(axis=0), data.mean(axis=0), rtol=0, atol=1e-15)
    assert np.allclose(jackknife_error(samples), data.std(axis=0, ddof=1) / np.sqrt(11), rtol=1e-12)


def test_samples_leave_one_out():
    data = RNG.normal(size=(6, 3))
    samples = jackknife_samples(data)
    for left_out in range(6):
        assert np.allclose(samples[left_out], np.delete(data, left_out, axis=0).mean(axis=0), atol=1e-15)


def test_error_of_a_square_in_closed_form():
    """f = mean^2, data 0, 0, 1, 1: samples (2/3)^2 and (1/3)^2, twice each; error^2 = 3/4 * 4 * (1/6)^2."""
    samples = jackknife_samples(np.array([0.0, 0.0, 1.0, 1.0])) ** 2
    assert np.isclose(jackknife_error(samples), np.sqrt(3) / 6, rtol=1e-14)


def test_covariance_of_means_and_its_diagonal():
    data = RNG.normal(size=(40, 2, 3)) @ RNG.normal(size=(3, 3))
    covariance = jackknife_covariance(jackknife_samples(data))
    for row in range(2):
        assert np.allclose(covariance[row], np.cov(data[:, row].T) / 40, rtol=1e-11)
    diagonal = np.diagonal(covariance, axis1=-2, axis2=-1)
    assert np.allclose(np.sqrt(diagonal), jackknife_error(jackknife_samples(data)), rtol=1e-12)


def test_binning_averages_consecutive_configurations():
    data = np.arange(7.0)[:, None] * [1, 10]
    assert np.array_equal(bin_means(data, 1), data)
    assert np.array_equal(bin_means(data, 3), [[1, 10], [4, 40]])


def test_binning_recovers_the_error_of_correlated_data():
    """Each value doubled: the naive error is too small by sqrt(2), bins of 2 give that of the originals."""
    data = RNG.normal(size=(500, 1))
    doubled = np.repeat(data, 2, axis=0)
    honest = jackknife_error(jackknife_samples(data))
    assert np.allclose(jackknife_error(jackknife_samples(bin_means(doubled, 2))), honest, rtol=1e-12)
    assert np.allclose(jackknife_error(jackknife_samples(doubled)), honest / np.sqrt(2), rtol=1e-2)


@pytest.mark.parametrize(("count", "width"), [(0, 1), (1, 2), (4, 0)])
def test_refuses_what_leaves_no_bin(count, width):
    with pytest.raises(InputError, match=f"{count} configurations in bins of {width} leave no bin"):
        bin_means(np.zeros(count), width)


def test_one_bin_has_a_mean_and_no_error():
    data = bin_means(RNG.normal(size=(3, 4)), 2)
    samples = jackknife_samples(data)
    assert data.shape == samples.shape == (1, 4)
    assert np.isnan(jackknife_error(samples)).all() and np.isnan(jackknife_covariance(samples)).all()
    assert np.isnan(bootstrap_error(bootstrap_samples(data, 5, seed=3), 1)).all()
    assert few_degrees_of_freedom(1) == "no errors: at least two bins of configurations are needed"


@pytest.mark.parametrize("count", [3, 4, 50])
def test_bootstrap_error_of_a_mean(count):
    """That of the jackknife, from few configurations too."""
    data = RNG.normal(size=(count, 4))
    samples = bootstrap_samples(data, 4000, seed=77)
    expected = data.std(axis=0, ddof=1) / np.sqrt(count)
    assert np.allclose(bootstrap_error(samples, count), expected, rtol=5 / np.sqrt(2 * 4000))
    assert np.allclose(samples.mean(axis=0), data.mean(axis=0), atol=5 * expected.max() / np.sqrt(4000))


def test_bootstrap_error_in_closed_form():
    """Samples 0 and 2 of three configurations: a variance of 2 with one degree of freedom, times 3 / 2."""
    assert np.isclose(bootstrap_error([0.0, 2.0], 3), np.sqrt(3), rtol=1e-14)


def test_bootstrap_is_reproducible_and_seeded():
    data = RNG.normal(size=(9, 2))
    assert np.array_equal(bootstrap_samples(data, 20, seed=5), bootstrap_samples(data, 20, seed=5))
    assert not np.array_equal(bootstrap_samples(data, 20, seed=5), bootstrap_samples(data, 20, seed=6))


@pytest.mark.parametrize(
    ("bins", "words"), [(2, "1 degree of freedom: multiply them by 1.84 "), (4, "3 degrees"), (20, "")]
)
def test_degrees_of_freedom_are_said_for_few_bins(bins, words):
    """Student's quantile: 1.84 with one degree of freedom, the Cauchy distribution's tan(0.6827 pi / 2)."""
    assert words in few_degrees_of_freedom(bins)
    assert bool(words) == bool(few_degrees_of_freedom(bins))

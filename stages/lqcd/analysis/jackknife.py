"""Errors of functions of ensemble averages: jackknife, bootstrap, covariance.

Configurations are taken as independent, or made so by binning. The resamplings are a dozen lines on labelled
arrays, which is why no statistics library stands behind them; the autocorrelation analysis of one long Markov
chain (the Gamma method, as in `pyerrors`) is another thing and would start from the same stored samples.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError

FEW = 20
"""Bins below which errors are far enough from a Gaussian's to say so."""


def few_degrees_of_freedom(bins: int) -> str:
    """The degrees of freedom of an error from fewer than `FEW` bins, in words; '' for more.

    The interval of 68 % is Student's: value and error times its quantile. One bin has no error.
    """
    if bins >= FEW:
        return ""
    if bins < 2:
        return "no errors: at least two bins of configurations are needed"
    factor = scipy.special.stdtrit(bins - 1, 0.5 + 0.6827 / 2)
    degrees = "1 degree" if bins == 2 else f"{bins - 1} degrees"
    return f"errors have {degrees} of freedom: multiply them by {factor:.2f} for a 68 % interval"


def bin_means(data: ArrayLike, width: int) -> NDArray:
    """Means of `width` consecutive configurations, ``[bin, ...]``, of data ``[config, ...]``.

    An incomplete last bin is dropped. Raises InputError where no bin is left.
    """
    array = _configurations(data)
    if not isinstance(width, Integral):
        raise InputError(f"the width of bins is a whole number of configurations, got {width!r}")
    bins = len(array) // max(width, 1)
    if width < 1 or bins < 1:
        raise InputError(
            f"{len(array)} configurations in bins of {width} leave no bin: add configurations or take "
            "smaller bins"
        )
    return array[: bins * width].reshape(bins, width, *array.shape[1:]).mean(axis=1)


def _configurations(data: ArrayLike) -> NDArray:
    array = np.asarray(data)
    if not array.ndim:
        raise InputError(f"data are [config, ...], got the number {array}")
    return array


def jackknife_samples(data: ArrayLike) -> NDArray:
    """Averages without one configuration (or bin) each: (sum_j x_j - x_i) / (n - 1), ``[n, ...]``.

    NaN for n = 1, and so is every error that is made of it.
    """
    array = _configurations(data)
    if len(array) < 2:
        return np.full(array.shape, np.nan)
    return (array.sum(axis=0) - array) / (len(array) - 1)


def jackknife_error(samples: ArrayLike) -> NDArray:
    """sqrt((n - 1) / n sum_i (s_i - mean s)^2) over the first axis of jackknife samples."""
    array = np.asarray(samples)
    return np.sqrt((len(array) - 1) * array.var(axis=0))


def jackknife_covariance(samples: ArrayLike) -> NDArray:
    """(n - 1) / n sum_i (s_i - mean s)(s_i - mean s)^T of samples ``[n, ..., t]``; ``[..., t, t]``."""
    array = np.asarray(samples)
    deviation = array - array.mean(axis=0)
    return (len(array) - 1) / len(array) * np.einsum("n...i,n...j->...ij", deviation, deviation)


def bootstrap_samples(data: ArrayLike, samples: int, seed: int) -> NDArray:
    """Averages of n configurations drawn with replacement, ``[samples, ...]``; reproducible from the seed.

    Raises InputError without configurations or samples.
    """
    array = _configurations(data)
    if not isinstance(samples, Integral) or samples < 1 or not len(array):
        raise InputError(
            f"a bootstrap needs configurations and a whole number of samples, got data {array.shape}, "
            f"{samples} samples"
        )
    draws = np.random.Generator(np.random.Philox(seed)).integers(len(array), size=(samples, len(array)))
    weights = np.stack([np.bincount(draw, minlength=len(array)) for draw in draws]) / len(array)
    return np.tensordot(weights, array, axes=1)


def bootstrap_error(samples: ArrayLike, drawn: int) -> NDArray:
    """sqrt(n / (n - 1)) times the standard deviation over bootstrap samples, each of n = `drawn` averaged.

    The factor makes the variance of a mean unbiased, as that of the jackknife is. The samples keep their
    spread. NaN for n = 1.
    """
    if drawn < 2:
        return np.full_like(np.asarray(samples)[0], np.nan)
    return np.sqrt(drawn / (drawn - 1)) * np.asarray(samples).std(axis=0, ddof=1)

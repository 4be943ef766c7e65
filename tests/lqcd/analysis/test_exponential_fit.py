"""Fits of exponentials with oscillating partners: known states come back, tails follow them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from synthetic_hvp import periodic

from stages.base.errors import InputError
from stages.lqcd.analysis.common_resampling import Resampling
from stages.lqcd.analysis.exponential_fit import ExponentialFit
from stages.lqcd.analysis.jackknife import jackknife_samples

N = 32
SMOOTH = periodic(N, [(0.3, 0.35), (0.5, 0.8)])


def rows(scale: float = 1.0) -> np.ndarray:
    """Average and jackknife samples of 12 configurations, noise of 1e-3 per slice."""
    exact = SMOOTH - (-1.0) ** np.arange(N) * periodic(N, [(0.1, 0.6)])
    data = scale * exact * (1 + 1e-3 * np.random.default_rng(61).normal(size=(12, N)))
    return np.vstack([data.mean(axis=0), jackknife_samples(data)])


def test_states_come_back() -> None:
    pytest.importorskip("corrfitter", reason="corrfitter is not installed")
    found = ExponentialFit(2).continued(rows(), 10, Resampling())
    error = Resampling().error(found.energies)[0]
    assert 0 < error < 0.003 and abs(found.energies[0, 0] - 0.35) < 5 * error
    assert np.array_equal(found.correlator[:, :11], rows()[:, :11])
    np.testing.assert_allclose(found.correlator[0, 11:22], SMOOTH[11:22], rtol=0.02)
    other = ExponentialFit(2).continued(rows(1e-5), 10, Resampling())
    np.testing.assert_allclose(other.correlator, 1e-5 * found.correlator, rtol=1e-4)
    with pytest.raises(InputError, match="beyond N/2 = 16"):
        ExponentialFit(2, 20).continued(rows(), 10, Resampling())


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "corrfitter", None)
    monkeypatch.setitem(sys.modules, "gvar", np)
    with pytest.raises(InputError, match="needs corrfitter: pip install corrfitter, or leave `fit` out"):
        ExponentialFit(2).continued(rows(), 10, Resampling())
    with pytest.raises(InputError, match="states"):
        ExponentialFit(2, states=0)

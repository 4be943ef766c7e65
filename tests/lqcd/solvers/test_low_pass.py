"""Polynomials that keep low modes and take out the noise above, against their values and bounds."""

from itertools import pairwise

import numpy as np
import pytest

from stages.lqcd.solvers.deflation import MARGIN, LowPass, upper_bound

HIGH = 20.0


@pytest.mark.parametrize("degree", [1, 2, 4, 9])
def test_equioscillation(degree):
    """sqrt(x) |p| reaches sqrt(high) / (2 k + 1) with both signs between all neighbouring roots."""
    low_pass = LowPass(HIGH, degree)
    x = np.linspace(0, HIGH, 200_001)
    weighted = np.sqrt(x / HIGH) * low_pass.values(x) * (2 * degree + 1)
    edges = [0, *np.sort(low_pass.roots), HIGH]
    parts = [weighted[(x >= a) & (x <= b)] for a, b in pairwise(edges)]
    for number, part in enumerate(parts):
        assert np.max((-1) ** number * part) == pytest.approx(1, abs=1e-6)
    assert low_pass.values(np.zeros(1))[0] == 1


def test_low_modes_stay_and_noise_goes(dense, random_block):
    values = np.geomspace(1e-5, HIGH, 120)
    B = dense(17, values)
    x = random_block(3, *B.shape, 2)
    eigenvectors = np.linalg.eigh(B.matrix)[1]
    before = eigenvectors.conj().T @ x.reshape(120, 2)
    low_pass = LowPass(MARGIN * HIGH, 4)
    after = eigenvectors.conj().T @ low_pass.apply(B, x.copy()).reshape(120, 2)
    assert np.allclose(after, low_pass.values(values)[:, None] * before, atol=1e-12)
    assert np.allclose(after[:40], before[:40], rtol=2e-3) and abs(after[-1] / before[-1]).max() < 0.15


def test_upper_bound(dense, random_block):
    B = dense(18, np.linspace(0.01, HIGH, 120))
    assert HIGH < upper_bound(B, random_block(3, *B.shape, 1)) < MARGIN * HIGH

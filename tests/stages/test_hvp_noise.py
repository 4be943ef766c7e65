"""Noise of single vectors: few or many, the covariances are those of the estimates."""

import numpy as np
import pytest

from pipeline import At
from stages.connected.walls import WallCorrelators
from stages.hvp.noise import wall_noise
from stages.lqcd.analysis.hvp_sum import fold

OPERATORS = ("GX-GX", "GY-GY", "GZ-GZ")


@pytest.mark.parametrize("number", [3, 40])
def test_covariances_of_walls_of_two_quarks(number: int) -> None:
    rng = np.random.default_rng(number)
    values = rng.normal(size=(2, number, 3, 8))
    others = (0 * values[0], np.arange(number), *3 * (np.zeros((number, 1)),))
    chunks = [[(At(source=list(range(number))), WallCorrelators(quark + 0j, *others))] for quark in values]
    found = wall_noise(
        *chunks, at=At(config="a"), rows=("light", "strange"), operators=OPERATORS, currents=("local",)
    ).deviation
    assert found.shape == (min(number, 10), 2, 5)
    both = fold(values.mean(axis=2)).transpose(1, 0, 2).reshape(number, -1)
    flat = found.reshape(len(found), -1)
    np.testing.assert_allclose(flat.T @ flat, np.cov(both.T) / number, rtol=1e-10, atol=1e-15)

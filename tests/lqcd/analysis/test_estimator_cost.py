"""Cost of an estimator for an error, from noise of known variance."""

import numpy as np
import pytest

from stages.lqcd.analysis.estimator_cost import EstimatorCost
from stages.lqcd.estimators.truncated import Piece

VECTORS, T, SIGMA = 40, 8, 0.5


def estimator(seed, signal=0.0, once=3.0):
    """Three configurations of loops `signal` + noise of spread SIGMA; 80 seconds for their vectors."""
    rng = np.random.default_rng(seed)
    values = signal + SIGMA * rng.normal(size=(3, VECTORS, 4, T))
    pieces = [[Piece(tuple(range(VECTORS)), of_config)] for of_config in values]
    return EstimatorCost.of(pieces, 80.0, once)


def test_error_of_a_loop_falls_with_the_root_of_the_work():
    cost = estimator(61)
    assert cost.loop_error() == pytest.approx(SIGMA / np.sqrt(VECTORS), rel=0.05)
    assert cost.loop_error(4) == pytest.approx(cost.loop_error() / 2, rel=1e-9)
    assert cost.work(4) == 3 + 4 * 80


def test_error_of_c_without_signal_is_that_of_pairs():
    """var C(t) = 2 sigma^4 / (3 T N (N - 1)) times 1 for t with 2 t = 0 mod T, else 1/2 (sum over t0 and
    its image under t0 -> t0 + t are alike): here checked as the root mean square over 1 <= t <= T / 2."""
    cost = estimator(62)
    pairs = VECTORS * (VECTORS - 1)
    single = SIGMA**4 / (3 * T)
    expected = np.mean([2 * single / pairs if t == T // 2 else single / pairs for t in range(1, T // 2 + 1)])
    assert cost.correlator_error() == pytest.approx(np.sqrt(expected), rel=0.05)


@pytest.mark.parametrize("signal", [0.0, 0.4])
def test_work_for_an_error_reaches_it(signal):
    cost = estimator(63, signal)
    goal = cost.correlator_error(7.0)
    assert cost.work_for(goal) == pytest.approx(cost.work(7.0), rel=1e-6)
    dearer = estimator(63, signal, once=300.0)
    assert dearer.work_for(goal) == pytest.approx(cost.work_for(goal) + 297, rel=1e-6)
    assert cost.work_for(1e6) == cost.work(1.001 / VECTORS)  # a pair is the least
    assert cost.work_for(1e-30) == cost.work_for(0.0) == np.inf
    work, errors = cost.curve([1, 7])
    assert errors[1] == pytest.approx(goal, rel=1e-12) and work[1] == cost.work(7.0)

"""Bounds of the tail of the vector correlator: the reference's brackets, and truth inside of them."""

import numpy as np
import pytest
from synthetic_hvp import periodic, synthetic

from stages.base.errors import InputError
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.effective_mass import without_oscillation
from stages.lqcd.analysis.hvp_sum import WINDOWS, HvpSum
from stages.lqcd.analysis.jackknife import jackknife_error, jackknife_samples
from stages.lqcd.analysis.scale import Scale

CASE, CORRELATOR, SMOOTH = synthetic()
EXTENT, LAST = CASE["N"], CASE["N"] // 2
WEIGHTS = HvpSum(Scale(0.09, 0.0)).weights(EXTENT)
TRUTH = SMOOTH[: LAST + 1] @ WEIGHTS
LOWEST = 0.27
BRACKETS = CASE["brackets 1e-10, sum n = 1..N/2, end_half, terms n <= n_c as they are"]


@pytest.mark.parametrize("bracket", BRACKETS, ids=lambda bracket: bracket["t_c fm (asked)"])
def test_brackets_of_the_reference(bracket):
    cut = bracket["n_c"]
    for key, correlator in (("C without oscillation", SMOOTH), ("S", without_oscillation(CORRELATOR))):
        zero, lower, upper = map(float, bracket[key].values())
        bounds = Tail(LOWEST, oscillating=False, steps=1).connected(correlator, cut, LAST)
        assert correlator[: cut + 1] @ WEIGHTS[: cut + 1] == pytest.approx(zero, rel=1e-11)
        assert bounds.lower @ WEIGHTS == pytest.approx(lower, rel=1e-11)
        assert bounds.upper @ WEIGHTS == pytest.approx(upper, rel=1e-11)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("cut", [17, 22, 28, 32])
def test_bounds_of_an_oscillating_correlator_hold_the_truth(cut, steps):
    """Until they are closer to each other than 0.3, which the partner adds to the sum at short times."""
    bounds = Tail(LOWEST, steps=steps).connected(CORRELATOR, cut, LAST)
    lower, upper = bounds.lower @ WEIGHTS, bounds.upper @ WEIGHTS
    assert lower < TRUTH < upper < lower + 220
    assert np.array_equal(bounds.middle[: cut + 1], CORRELATOR[: cut + 1])


def noisy(replicas: int, configurations: int, seed: int) -> np.ndarray:
    """The correlator ``[config, replica, N]`` with noise that falls like exp(-m_pi t), half of its variance
    common to all slices: the sum to N/2 has an error of 2 %.
    """
    rng = np.random.default_rng(seed)
    n = np.minimum(np.arange(EXTENT), EXTENT - np.arange(EXTENT))
    own = rng.normal(size=(configurations, replicas, EXTENT))
    common = rng.normal(size=(configurations, replicas, 1))
    return CORRELATOR + 0.7 * (own + common) * 4.8e-7 * np.exp(-0.062 * n)


def coverage(cut: int) -> tuple[float, float]:
    """How often, of 500 replicas, the truth is between the bounds plus and minus their errors; and how often
    within the total error of the bounds' mean.
    """
    data = noisy(500, 25, 1729)
    means, samples = (
        Tail(LOWEST).connected(x, cut, LAST) for x in (data.mean(axis=0), jackknife_samples(data))
    )
    low, middle, high = (
        (getattr(means, name) @ WEIGHTS, jackknife_error(getattr(samples, name) @ WEIGHTS))
        for name in ("lower", "middle", "upper")
    )
    between = (low[0] - low[1] <= TRUTH) & (high[0] + high[1] >= TRUTH)
    error = np.hypot(middle[1], (high[0] - low[0]) / 2)
    plain = jackknife_error(jackknife_samples(data)[..., : LAST + 1] @ WEIGHTS)
    assert error.mean() < 0.75 * plain.mean()
    return float(between.mean()), float((np.abs(middle[0] - TRUTH) <= error).mean())


@pytest.mark.parametrize("cut", [27, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (25, 28, 30))])
def test_bounds_hold_the_truth_in_noise(cut):
    between, within = coverage(cut)
    assert between >= 0.75
    assert within >= 0.68


def test_noise_makes_no_bound_absurd():
    """Without a signal the lower bound is what was summed; with E_eff below E_0 both are the upper one."""
    correlator = CORRELATOR.copy()
    correlator[30:67] = -1e-9
    bounds = Tail(LOWEST).connected(correlator, 34, LAST)
    assert not bounds.lower[35:].any() and not bounds.upper[35:].any()
    slow = periodic(EXTENT, [(1.0, 0.1)])
    bounds = Tail(LOWEST).connected(slow, 20, LAST)
    assert np.array_equal(bounds.lower, bounds.upper)


def test_a_tail_may_go_beyond_the_middle():
    bounds = Tail(LOWEST).connected(CORRELATOR, 28, 200)
    weights = HvpSum(Scale(0.09, 0.0), last=200).weights(EXTENT)
    assert bounds.lower.shape == weights.shape == (201,)
    assert weights[LAST] == pytest.approx(2 * WEIGHTS[LAST]) and bounds.upper[200] > 0
    energies = np.diff(np.log(bounds.upper[29:]))
    assert np.allclose(energies, -LOWEST, rtol=1e-12)


def test_disconnected_bounds():
    """G_disc of an omega that cancels the rho's tenth, and the strange part's falls faster."""
    light, strange = periodic(EXTENT, [(0.02, 0.35)]), periodic(EXTENT, [(0.002, 0.46)])
    disconnected = periodic(EXTENT, [(-0.002, 0.35), (0.0015, 0.36)])
    tail = Tail(0.35, strange_energy=0.46)
    truth = disconnected[: LAST + 1] @ WEIGHTS
    for cut in (10, 20, 30):
        bounds = tail.disconnected(disconnected, light, strange, cut, LAST)
        assert bounds.lower @ WEIGHTS < truth < bounds.upper @ WEIGHTS
        expected = -(light / 10 + strange)[cut + 1 : LAST - 8]
        assert np.allclose(bounds.lower[cut + 1 : LAST - 8], expected, rtol=0.01)
        assert not bounds.upper[cut + 1 :].any()


def test_what_is_refused():
    for call, words in (
        (lambda: Tail(0.0), "energy of a tail must be positive, got 0.0"),
        (lambda: Tail(LOWEST, "0.5"), "value of strange_energy of a tail must be a finite number, got '0.5'"),
        (lambda: Tail(None), "value of energy of a tail must be a finite number, got None"),
        (lambda: Tail(LOWEST, slice=12.5), "slice of a tail must be a whole number .*, got 12.5"),
        (lambda: Tail(LOWEST, slice=0), "slice of a tail must be a whole number .*, got 0"),
        (lambda: Tail(LOWEST, steps=0), "steps of a tail must be a whole number .*, got 0"),
        (lambda: Tail(LOWEST).connected(SMOOTH, 48, 48), "a slice from steps = 4 to 47, got 48"),
        (lambda: Tail(LOWEST).disconnected(*[SMOOTH] * 3, 20, 48), "needs strange_energy"),
        (lambda: HvpSum(Scale(0.09, 0.0), WINDOWS["LD"], last=14).weights(96), "sum ends at 1.26 fm"),
    ):
        with pytest.raises(InputError, match=words):
            call()

"""Effective masses of correlators in closed form."""

import numpy as np

from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation


def test_one_state_forwards_and_backwards() -> None:
    t, mass = np.arange(12), np.array([[0.31], [1.7]])
    mixed = 2.3 * np.exp(-mass * t) + 0.4 * np.exp(mass * (t - 12))
    found = effective_mass(mixed)
    np.testing.assert_allclose(found[:, 1:-1], np.broadcast_to(mass, (2, 10)), rtol=1e-9)
    assert np.isnan(found[:, [0, -1]]).all()


def test_no_mass_where_there_is_none() -> None:
    found = effective_mass([1.0, 2.0, 1.0])
    assert np.isnan(found[1])


def test_the_oscillating_partner_is_taken_out() -> None:
    """A state gets the factor (1 + cosh m) / 2 and its partner (1 - cosh m) / 2; times are periodic."""
    t, mass = np.arange(12), np.array([[0.31], [1.7]])
    state = np.exp(-mass * t)
    for sign, factor in ((1, (1 + np.cosh(mass)) / 2), (-1, (1 - np.cosh(mass)) / 2)):
        found = without_oscillation(float(sign) ** t * state) * float(sign) ** t
        np.testing.assert_allclose(found[:, 1:-1], (factor * state)[:, 1:-1], rtol=1e-12)
    periodic = np.arange(4.0)
    np.testing.assert_allclose(without_oscillation(periodic), [1, 1, 2, 2], rtol=1e-14)

"""Effective masses of correlators in closed form."""

from __future__ import annotations

import numpy as np

from stages.lqcd.analysis.effective_mass import effective_mass


def test_one_state_forwards_and_backwards() -> None:
    t, mass = np.arange(12), np.array([[0.31], [1.7]])
    mixed = 2.3 * np.exp(-mass * t) + 0.4 * np.exp(mass * (t - 12))
    found = effective_mass(mixed)
    np.testing.assert_allclose(found[:, 1:-1], np.broadcast_to(mass, (2, 10)), rtol=1e-9)
    assert np.isnan(found[:, [0, -1]]).all()


def test_no_mass_where_there_is_none() -> None:
    found = effective_mass([1.0, 2.0, 1.0])
    assert np.isnan(found[1])

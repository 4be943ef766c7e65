"""Fitted smoothers: shortest residuals on average, by steps or powers, as good as those fitted each time."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.multigrid import smoothers as module
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid
from stages.lqcd.multigrid.smoothers import (
    MOST_STEPS,
    FittedSmoother,
    PolynomialSmoother,
    Recorder,
    fitted,
)

OMEGAS = (0.9 + 0.3j, 0.9 - 0.3j, 1.1 + 0.8j, 1.2 - 0.7j, 0.8)


def moments(A: Any, b: Any, x: Any) -> Any:
    smoother = Recorder(PolynomialSmoother(4))
    smoother.improve(A, b, x)
    return smoother.moments


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_of_one_residual_it_leaves_the_least(wilson: Any, draw: Any, steps: int) -> None:
    """That of `PolynomialSmoother`; zeros are not counted."""
    A = WilsonSchur(wilson(mass=0.3))
    b, x = draw(*A.shape, 2), draw(*A.shape, 2)
    b[..., 1] = x[..., 1] = 0
    improved, expected = x.copy(), x.copy()
    of_this = fitted(PolynomialSmoother(steps), moments(A, b, x.copy()))
    assert of_this.steps == steps
    of_this.improve(A, b, improved)
    PolynomialSmoother(steps).improve(A, b, expected)
    np.testing.assert_allclose(improved, expected, atol=1e-7)


@pytest.mark.parametrize("in_16_bits", [True, False])
def test_steps_and_powers(wilson: Any, draw: Any, monkeypatch: Any, in_16_bits: bool) -> None:
    """Steps in 16 bits, as a GPU takes them, and powers make the same polynomial."""
    A, smoother = WilsonSchur(wilson(mass=0.3)).astype(np.complex64), FittedSmoother(OMEGAS)
    monkeypatch.setattr(module, "_in_16_bits", lambda _: in_16_bits)
    b, x = (draw(*A.shape, 3).astype(np.complex64) for _ in range(2))
    close = partial(np.testing.assert_allclose, rtol=0, atol=2e-3 if in_16_bits else 2e-5)
    kept, start, expected = b.copy(), x.copy(), b
    for omega in OMEGAS:
        expected = expected - np.complex64(omega) * A.apply(expected)
    y = np.zeros_like(b)
    smoother.improve(A, b, y)
    assert np.array_equal(b, kept) and smoother.steps == 5
    close(b - A.apply(y), expected)
    smoother.improve(A, b, x)
    assert np.array_equal(b, kept)
    y = np.zeros_like(b)
    smoother.improve(A, b - A.apply(start), y)
    close(x, start + y)


def test_what_is_fitted(wilson: Any, draw: Any) -> None:
    A = WilsonSchur(wilson(mass=0.3))
    found = moments(A, draw(*A.shape, 2), draw(*A.shape, 2))
    for smoother in (FittedSmoother(OMEGAS), PolynomialSmoother(1)):
        assert fitted(smoother, found) is smoother and Recorder(smoother).moments is None
    assert fitted(PolynomialSmoother(3), None) == PolynomialSmoother(3)
    nothing_left = np.zeros_like(found)
    nothing_left[0, 0] = 1
    assert fitted(PolynomialSmoother(3), nothing_left) == PolynomialSmoother(3)
    for steps in (MOST_STEPS, MOST_STEPS + 3, 2 * MOST_STEPS + 1):
        long = fitted(PolynomialSmoother(steps), found)
        assert isinstance(long, FittedSmoother) and long.steps == steps
        r, y = draw(*A.shape, 1), np.zeros((*A.shape, 1), complex)
        long.improve(A, r, y)
        assert np.linalg.norm(r - A.apply(y)) < 0.1 * np.linalg.norm(r)


@pytest.mark.parametrize("in_16_bits", [True, False])
def test_as_many_iterations_as_with_smoothers_fitted_each_time(wilson, draw, monkeypatch, in_16_bits):
    monkeypatch.setattr(module, "_in_16_bits", lambda A: in_16_bits and isinstance(A, WilsonSchur))
    M = wilson((4, 4, 4, 4), 0.02)
    chosen = LevelParameters(aggregate=(2, 2, 2, 2), vectors=6, refinements=1)
    hierarchy = Multigrid((chosen,)).setup(M)
    S, b = hierarchy.system, draw(*hierarchy.system.shape, 3)
    assert isinstance(hierarchy.cycle.levels[0].smoother, FittedSmoother)
    each_time = replace(hierarchy, cycle=hierarchy.cycle.with_smoothers([chosen.post]))
    counts = [each.solver().solve(S, b).iterations for each in (hierarchy, each_time)]
    assert abs(counts[0] - counts[1]) <= 1, counts

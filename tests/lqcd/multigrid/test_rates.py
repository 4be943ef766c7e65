"""Rates of setups: those of the cycle that solves, honest about low modes and about smoothers fitted once."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid import hierarchy as hierarchy_module
from stages.lqcd.multigrid import setup as module
from stages.lqcd.multigrid import smoothers as smoothers_module
from stages.lqcd.multigrid.hierarchy import Attempt
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid, PoorSetup
from stages.lqcd.multigrid.smoothers import FittedSmoother, PolynomialSmoother

LATTICE = Lattice((4, 4, 4, 4))


@cache
def rough(mass: float, xp: Any = np) -> WilsonOperator:
    """Wilson-clover on a quenched configuration of beta = 5.7."""
    thin = xp.asarray(thermalised(LATTICE, 5.7, 577, "multigrid", 50, 4))
    return WilsonOperator(WilsonDslash(wilson_links(thin, LATTICE, boundary="antiperiodic", csw=1.0)), mass)


def of(smoother: Any, vectors: int = 8, **options: Any) -> Multigrid:
    return Multigrid((LevelParameters((2, 2, 2, 2), vectors, post=smoother),), **options)


def iterations(hierarchy: Any, **options: Any) -> int:
    """Of a solve to 1e-10, which may end before."""
    S, rng = hierarchy.system, np.random.default_rng(3)
    b = rng.normal(size=(*S.shape, 3)) + 1j * rng.normal(size=(*S.shape, 3))
    return hierarchy.solver(**options).solve(S, S.xp.asarray(b), on_failure="return").iterations


def whole(cases: list[Any], few: list[Any]) -> list[Any]:
    """All cases, but for few of them marked as slow."""
    return [case if case in few else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


SMOOTHED = [(mass, steps) for mass in (-0.8, -0.4) for steps in (6, 8, 12, 16, 20, 24, 32, 40)]
SLOW = [(-0.8, 1, 8), (-1.0, 1, 8), (-1.2, 8, 4), (-1.2, 2, 8), (-1.4, 1, 8), (-1.4, 2, 8), (-1.4, 8, 8)]


@pytest.mark.parametrize(("mass", "steps"), whole(SMOOTHED, [(-0.4, 6)]))
def test_more_smoothing_takes_fewer_iterations_and_the_rate_says_so(mass: float, steps: int) -> None:
    """Of polynomials of any degree, in powers of single precision: at most twelve, eighteen of six steps."""
    hierarchy = of(PolynomialSmoother(steps)).setup(rough(mass))
    taken, predicted = iterations(hierarchy), np.log(1e-10) / np.log(hierarchy.rate)
    assert isinstance(hierarchy.cycle.levels[0].smoother, FittedSmoother)
    assert taken <= (18 if steps == 6 else 12)
    assert predicted - 1 <= taken <= 1.25 * predicted + 2


@pytest.mark.parametrize("steps", [8, 20, 24, 40])
@pytest.mark.parametrize(
    "kernels", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_steps_from_root_to_root_in_16_bits(kernels: str, steps: int, monkeypatch: Any) -> None:
    """As a GPU takes them on the finest grid, in any number."""
    xp = pytest.importorskip("cupy") if kernels == "cuda" else np
    if kernels == "cpu":
        monkeypatch.setattr(smoothers_module, "_in_16_bits", lambda A: isinstance(A, WilsonSchur))
    hierarchy = of(PolynomialSmoother(steps)).setup(rough(-0.8, xp))
    taken, predicted = iterations(hierarchy), np.log(1e-10) / np.log(hierarchy.rate)
    assert isinstance(hierarchy.cycle.levels[0].smoother, FittedSmoother)
    assert taken <= 12 and predicted - 1 <= taken <= 1.25 * predicted + 2


@pytest.mark.parametrize(("mass", "vectors", "steps"), whole(SLOW, [(-1.4, 8, 8)]))
def test_low_modes_count(mass: float, vectors: int, steps: int) -> None:
    """The worst of three right-hand sides of a solve takes 0.9 to 1.4 times what the rate predicts."""
    hierarchy = of(PolynomialSmoother(steps), vectors, largest_rate=0.99).setup(rough(mass))
    predicted = np.log(1e-10) / np.log(hierarchy.rate)
    taken = iterations(hierarchy, max_iterations=300)
    assert 0.9 * predicted <= taken <= 1.4 * predicted or taken == 300 < 1.4 * predicted


def test_a_solve_whose_last_cycles_gain_nothing_has_rate_one() -> None:
    assert module._rate([1.0, 0.25, 0.0625, 0.07], begun=2) == 1
    assert module._rate([4.0**-k for k in range(6)]) == pytest.approx(0.5)


def test_poor_setups_are_refused_with_the_remedy(monkeypatch: Any) -> None:
    """One vector at a light mass; and a smoother that makes residuals grow, which more steps make worse."""
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    with pytest.raises(PoorSetup, match=r"no more than 0\.9. a cycle.*; raise vectors"):
        of(PolynomialSmoother(8), 1).setup(rough(-1.4))
    with pytest.raises(PoorSetup, match="take fewer smoothing steps or another smoother, and check"):
        of(GROWING).setup(rough(-0.4))
    attempts = [Attempt(1, 0.9), Attempt(2, 0.95)]
    assert "then low modes are left: raise vectors or refinements, and" in Multigrid()._poor(attempts, 0.5)


def test_powers_of_too_many_steps_are_not_used(monkeypatch: Any) -> None:
    """Those of one polynomial of 24 steps, whose rounding the cycles that go on with a solve must show."""
    monkeypatch.setattr(
        FittedSmoother, "runs", property(lambda self: [smoothers_module._powers_of(self.omegas)])
    )
    hierarchy = of(PolynomialSmoother(24)).setup(rough(-0.8))
    assert isinstance(hierarchy.cycle.levels[0].smoother, PolynomialSmoother) and hierarchy.rate < 0.05


def test_a_fit_of_too_few_steps_is_not_used(monkeypatch: Any) -> None:
    """Eighteen cycles would be taken for eight, for those before have done most of the work."""
    right = hierarchy_module.fitted
    monkeypatch.setattr(hierarchy_module, "fitted", lambda _, moments: right(PolynomialSmoother(2), moments))
    hierarchy = of(PolynomialSmoother(8)).setup(rough(-0.4))
    predicted = np.log(1e-10) / np.log(hierarchy.rate)
    assert isinstance(hierarchy.cycle.levels[0].smoother, PolynomialSmoother)
    assert iterations(hierarchy) <= 1.25 * predicted + 2


GROWING = FittedSmoother((9.0,) * 4)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [6, 4])
def test_a_fitted_smoother_that_does_worse_is_not_used(monkeypatch: Any, broken: int) -> None:
    """On that grid, of two; the stored setup is the same."""
    right = hierarchy_module.fitted

    def fitted(smoother: Any, moments: Any) -> Any:
        wrong = moments is not None and smoother.steps == broken
        return GROWING if wrong else right(smoother, moments)

    steps = (6, 4)
    levels = [
        LevelParameters(blocks, 8, post=PolynomialSmoother(n), refinements=1)
        for blocks, n in zip([(2, 2, 2, 2), (1, 1, 1, 2)], steps, strict=True)
    ]
    multigrid, M = Multigrid(tuple(levels)), rough(-1.0)
    expected = multigrid.setup(M)
    assert all(level.moments is not None for level in expected.cycle.levels)
    monkeypatch.setattr(hierarchy_module, "fitted", fitted)
    hierarchy = multigrid.setup(M)
    assert [level.moments is None for level in hierarchy.cycle.levels] == [n == broken for n in steps]
    assert hierarchy.rate < 1.2 * expected.rate
    loaded = multigrid.load(hierarchy.arrays(), hierarchy.metadata(), M)
    b = iterations(hierarchy), iterations(loaded), iterations(expected)
    assert b[0] == b[1] <= b[2] + 2

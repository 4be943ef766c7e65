"""Rounds until a target is met, many times over: the true scatter, and whether quoted errors are honest."""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from synthetic_noise import SyntheticLoops, waving

from pipeline import At
from stages.ensemble import configuration
from stages.ensemble import staggered_operator as operators
from stages.loops import current_loops as loops
from stages.loops.correlator import Correlator
from stages.loops.noise_allocation import gauge_noise
from stages.lqcd.analysis.allocation import Counts, VarianceModel, next_counts
from stages.lqcd.analysis.disconnected import SPATIAL, disconnected_correlator, time_correlation
from stages.lqcd.analysis.stochastic_error import noise_moments
from stages.lqcd.estimators.truncated import Piece, estimate, truncated_pieces
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve

PILOT, STEP, MOST = (8, 4), 4, 512
COSTS = (1.0, 4.0)
WINDOW = slice(1, 4)
Sample = Callable[[Counts], tuple[Piece, ...]]
"""One repetition's pieces with these counts; more vectors keep the first ones."""


def model_of(quantity: str, pieces: tuple[Piece, ...]) -> VarianceModel:
    moments = noise_moments(pieces)
    if quantity == "loops":
        return VarianceModel(moments.loops, np.zeros_like(moments.quadratic[..., 0]))
    return VarianceModel(
        moments.linear[..., WINDOW].mean(axis=-1), moments.quadratic[..., WINDOW].mean(axis=-1)
    )


def result(quantity: str, pieces: tuple[Piece, ...]) -> np.ndarray:
    if quantity == "loops":
        return estimate(pieces).mean[SPATIAL]
    return disconnected_correlator(pieces)[WINDOW]


def until_met(quantity: str, sample: Sample, target: float) -> tuple[np.ndarray, float, int]:
    """The result, its quoted error, and the number of rounds after the pilot."""
    counts: Counts = PILOT
    for rounds in range(10):
        pieces = sample(counts)
        model = model_of(quantity, pieces)
        if (error := sqrt(model.variance(counts))) <= target:
            return result(quantity, pieces), error, rounds
        counts = next_counts(model, COSTS, target, counts, 1, MOST, STEP).counts
    raise AssertionError(f"not met with {counts}")


def check(quantity: str, samples: list[Sample], exact: np.ndarray, target: float) -> None:
    """True scatter within 25 % of the target; chi-squared of quoted errors; more than a pilot was needed."""
    found = [until_met(quantity, sample, target) for sample in samples]
    missed = np.mean([(value - exact) ** 2 for value, _, _ in found])
    assert len(found) >= 50
    assert sqrt(missed) == pytest.approx(target, rel=0.25)
    assert missed / np.mean([error**2 for _, error, _ in found]) == pytest.approx(1.0, abs=0.4)
    rounds = [rounds for _, _, rounds in found]
    assert 1 <= np.mean(rounds) < 3.5


def synthetic(source: SyntheticLoops, repetitions: int) -> list[Sample]:
    def sample(seed: int) -> Sample:
        everything = source.pieces(np.random.default_rng(seed), MOST, MOST)
        return lambda counts: tuple(
            Piece(piece.noise[:count], piece.values[:count])
            for piece, count in zip(everything, counts, strict=True)
        )

    return [sample(9000 + number) for number in range(repetitions)]


@pytest.mark.parametrize(
    ("quantity", "scale", "target"),
    [
        ("loops", 0.3, 0.11),
        pytest.param("correlator", 0.3, 0.02, marks=pytest.mark.slow),
        ("correlator", 0.1, 0.008),
    ],
)
def test_synthetic_loops(quantity: str, scale: float, target: float) -> None:
    """Loops, C(t) with its error linear in the noise, and mostly from pairs."""
    source = waving(scale)
    exact = source.mean[SPATIAL]
    if quantity == "correlator":
        exact = time_correlation(exact, exact).mean(axis=0)[WINDOW]
    check(quantity, synthetic(source, 50), exact, target)


@pytest.mark.parametrize(("quantity", "variance"), [("loops", 18.0), ("correlator", 50.0)])
def test_gauge_noise_is_the_spread_without_its_stochastic_part(quantity: str, variance: float) -> None:
    """Values of two configurations differ by 6 and by 10 where they count, and by far more elsewhere."""
    one, other = (Correlator(np.zeros((2, 4)), np.zeros((2, 4, 3)), *np.zeros((3, 1))) for _ in range(2))
    other.correlator[:], other.loops[:] = 1000, 1000
    other.correlator[1, 1:3], other.loops[1, SPATIAL] = 10, 6
    found = [gauge_noise([one, other], quantity, 1, slice(1, 3), noise) for noise in (0, 2, 51)]
    assert found == pytest.approx([sqrt(variance), sqrt(variance - 2), 0])
    assert gauge_noise([other], quantity, 1, slice(1, 3), 0) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("quantity", "target"), [("loops", 0.25), ("correlator", 0.2)])
def test_real_solves(quantity: str, target: float) -> None:
    """Light loops of a 4^4 lattice against the exact trace; each sample has noise of its own."""
    at = At(config="target.1")
    gauge = configuration.heatbath_configuration(
        at=at, extents=(4, 4, 4, 4), beta=6.0, seed=71, sweeps=8, overrelaxation=2
    )
    dslash = operators.hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    solve = Solve("block_cgrq", 1e-11, "double")
    exact = loops.exact_loops(dslash, at=at, mass=0.1, solve=solve).current[SPATIAL]
    if quantity == "correlator":
        exact = time_correlation(exact, exact).mean(axis=0)[WINDOW]
    noise = Noise(97, "z2", {"displacement": 2})

    def measured(number: int, first: int, last: int, tolerance: float) -> np.ndarray:
        there = At(config="target.1", noise=range(1000 * number + first, 1000 * number + last))
        wanted = replace(solve, tolerance=tolerance)
        current = loops.current_loops(dslash, at=there, mass=0.1, noise=noise, solve=wanted).current
        return current.reshape(last - first, 4, 4)

    def sample(number: int) -> Sample:
        kept = {tolerance: np.empty((0, 4, 4)) for tolerance in (5e-2, 1e-10)}

        def pieces(counts: Counts) -> tuple[Piece, ...]:
            for tolerance, count in zip(kept, counts, strict=True):
                have = kept[tolerance]
                if count > len(have):
                    more = measured(number, len(have), count, tolerance)
                    kept[tolerance] = np.concatenate([have, more])
            sloppy, fine = (
                Piece(tuple(range(count)), values[:count])
                for values, count in zip(kept.values(), counts, strict=True)
            )
            return truncated_pieces(sloppy, fine)

        return pieces

    check(quantity, [sample(number) for number in range(50)], exact, target)

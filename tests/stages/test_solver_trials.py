"""Trials of solvers are the first solves of the campaign that they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.ensemble import configuration
from stages.ensemble import staggered_operator as operators
from stages.errors import InputError
from stages.loops import current_loops as loops
from stages.loops import deflation_space
from stages.loops.solver_trials import (
    ACCURACIES,
    DEFLATED,
    MASSES,
    PLAIN,
    SOLVERS,
    NoiseSample,
    SolverTrials,
    TrialSolves,
    solver_trials,
)
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise import Noise
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.corrections import Correction
from stages.lqcd.solvers.deflation import StaggeredDeflation
from stages.lqcd.solvers.even_odd import Method
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import Solution
from workflows.g2_disconnected.choice import cheapest, costs

AT = {"config": "trial.7"}
MASS = dict(zip(MASSES, (0.05, 0.3), strict=True))
TOLERANCE = dict(zip(ACCURACIES, (1e-3, 1e-8), strict=True))
NOISE: dict[str, Any] = {"seed": 5150, "kind": "z4", "dilution": {"displacement": 2}}


@pytest.fixture(scope="module")
def dslash() -> StaggeredDslash:
    gauge = configuration.heatbath_configuration(
        at=At(**AT), extents=(4, 4, 4, 4), beta=6.0, seed=31, sweeps=4, overrelaxation=1
    )
    return operators.hisq_operator(gauge, at=At(**AT), boundary="antiperiodic", naik_epsilon=0.0)


@pytest.fixture(scope="module")
def deflation(dslash: StaggeredDslash) -> StaggeredDeflation:
    space = deflation_space.deflation_space(dslash, at=At(**AT), vectors=8, tolerance=1e-9)
    return deflation_space.deflation(dslash, space, at=At(**AT))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given up, whatever else the machine does."""
    monkeypatch.setattr(trial, "LEAST", 1e6)


def trials(at: At, dslash: StaggeredDslash, *upstream: Any, **options: Any) -> SolverTrials:
    settings = {**TOLERANCE, "planned": [64, 16], "block": 16, **options}
    names, low_modes = settings.pop("candidates"), settings.pop("deflated_noise", False)
    return solver_trials(
        dslash,
        *upstream,
        at=at,
        candidates=names,
        masses=loops.Masses(**MASS),
        solves=TrialSolves(**settings),
        noise=Noise(**NOISE),
        sample=NoiseSample(2, 1, low_modes),
    )


def first_iterations(
    dslash: StaggeredDslash, upstream: Any, name: str, mass: str, accuracy: str, **options: Any
) -> list[int]:
    """Of the first blocks of a chunk of the campaign on even and odd sites."""
    at = At(**AT, noise=(0, 1))
    solve = Solve(name, TOLERANCE[accuracy])
    loops.current_loops(
        dslash, *upstream, at=at, mass=MASS[mass], solve=solve, noise=Noise(**NOISE), **options
    )
    iterations = at.statistics["iterations"]
    return [iterations[0], iterations[len(iterations) // 2]]


def test_they_are_the_first_blocks(dslash: StaggeredDslash, deflation: StaggeredDeflation) -> None:
    at = At(**AT)
    found = trials(at, dslash, deflation, candidates=SOLVERS)
    assert np.isfinite(found.seconds_per_rhs).all() and (found.seconds_per_rhs > 0).all()
    assert (found.residual <= np.array([[1e-3], [1e-8]])).all()
    assert at.statistics["columns"] == 16 and at.statistics["planned"] == {"sloppy": 1024, "fine": 256}
    assert at.statistics["how"] == dict.fromkeys(SOLVERS, "converged")
    for solver, mass, accuracy in ((0, 0, 1), (1, 1, 0), (3, 0, 1)):
        upstream = [deflation] if SOLVERS[solver] in DEFLATED else []
        expected = first_iterations(dslash, upstream, SOLVERS[solver % 2], MASSES[mass], ACCURACIES[accuracy])
        assert found.iterations[solver, mass, accuracy].tolist() == expected


def test_of_the_remainder_where_low_modes_are_exact(
    dslash: StaggeredDslash, deflation: StaggeredDeflation
) -> None:
    at = At(**AT)
    found = trials(
        at, dslash, deflation, candidates=DEFLATED, fine=None, planned=[64, 0], deflated_noise=True
    )
    assert np.isnan(found.iterations[:2]).all() and np.isnan(found.iterations[:, :, 1]).all()
    expected = first_iterations(dslash, [deflation], PLAIN[0], "light", "sloppy", deflated_noise=True)
    assert found.iterations[2, 0, 0].tolist() == expected
    assert at.statistics["planned"] == {"sloppy": 1024, "fine": 0}


def iterations_as_seconds(solver: Method, problem: trial.TrialSystem, watch: trial.Stopwatch) -> Solution:
    solution = solver.solve(problem.operator, problem.sources)
    watch.stamps = [0.0, float(solution.iterations)]
    return solution


class WithoutOddPartners(StaggeredDeflation):
    """A deflation that serves the even sites alone."""

    def correction(self, A: NormalOperator) -> Correction:
        correction = super().correction(A)
        return correction if A.parity == EVEN else replace(correction, shift=1e30)


def test_vectors_that_fail_on_odd_sites_are_not_chosen(
    dslash: StaggeredDslash, deflation: StaggeredDeflation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an eigensolve that takes three quarters of what good vectors save; seconds are iterations."""
    monkeypatch.setattr("stages.loops.solver_trials.repeated", iterations_as_seconds)
    at = At(**AT)
    good, spoiled = (
        trials(at, dslash, space, candidates=SOLVERS)
        for space in (deflation, WithoutOddPartners(dslash, deflation.even))
    )
    without = costs(good, at.statistics, 0.0)
    setup = 0.75 * (min(without[name] for name in PLAIN) - min(without[name] for name in DEFLATED))
    assert cheapest(costs(good, at.statistics, setup)) in DEFLATED
    even = SolverTrials(*(np.stack([array[..., EVEN]] * 2, axis=-1) for array in spoiled))
    assert cheapest(costs(even, at.statistics, setup)) in DEFLATED
    assert cheapest(costs(spoiled, at.statistics, setup)) in PLAIN


def test_nothing_converges(dslash: StaggeredDslash) -> None:
    with pytest.raises(
        InputError,
        match=r"batched_cg: light quark, sloppy, even sites, 16 of 16 .*; block_cgrq: .* a larger mass$",
    ):
        trials(At(**AT), dslash, candidates=PLAIN, max_iterations=2)


def test_deflated_solves_need_a_deflation(dslash: StaggeredDslash) -> None:
    with pytest.raises(InputError, match="need a deflation"):
        trials(At(**AT), dslash, candidates=DEFLATED)

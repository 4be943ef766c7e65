"""Trials of solvers are the first solves of the campaign that they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble import configuration
from stages.ensemble import staggered_operator as operators
from stages.ensemble.expected_solves import ExpectedSolves, Layouts
from stages.loops import current_loops as loops
from stages.loops import deflation_space
from stages.loops.solver_trials import (
    ACCURACIES,
    SYSTEMS,
    NoiseSample,
    TrialSolves,
    solver_trials,
)
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise import Noise
from stages.lqcd.solvers import trial
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import Solution, Solver
from stages.lqcd.solvers.space import Correction
from stages.lqcd.solvers.trial import Candidate, Trials
from stages.shared.solver_trials import Eigensolve, SolverTrials, cheapest, costs

AT = {"config": "trial.7"}
MASS = dict(zip(loops.MASSES, (0.05, 0.3), strict=True))
TOLERANCE = dict(zip(ACCURACIES, (1e-3, 1e-8), strict=True))
NOISE: dict[str, Any] = {"seed": 5150, "kind": "z4", "dilution": {"displacement": 2}}
PLAIN = ["batched_cg double-single 8", "block_cgrq double-single 8"]
DEFLATED = [f"deflated {name}" for name in PLAIN]
OTHERS = ["block_cgrq double 8", "batched_cg double-single 3"]


@pytest.fixture(scope="module")
def dslash() -> StaggeredDslash:
    gauge = configuration.heatbath_configuration(
        at=At(**AT), extents=(4, 4, 4, 4), beta=6.0, seed=31, sweeps=4, overrelaxation=1
    )
    return operators.hisq_operator(gauge, at=At(**AT), boundary="antiperiodic", naik_epsilon=0.0)


@pytest.fixture(scope="module")
def deflation(dslash: StaggeredDslash) -> StaggeredSpace:
    space = deflation_space.deflation_space(dslash, at=At(**AT), vectors=8, tolerance=1e-9)
    return deflation_space.deflation(dslash, space, at=At(**AT))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped, whatever else the machine does."""
    for name in ("PATIENCE", "FIRST_PATIENCE"):
        monkeypatch.setattr(trial, name, np.inf)
    monkeypatch.setattr(trial, "REPEATS", 1)
    monkeypatch.setattr(Trials, "_promising", lambda *_: True)


def trials(at: At, dslash: StaggeredDslash, *upstream: Any, **options: Any) -> SolverTrials:
    settings = {**TOLERANCE, "planned": [64, 16], **options}
    names, low_modes = settings.pop("candidates"), settings.pop("deflated_noise", False)
    solves, sample = TrialSolves(**settings), NoiseSample(2, 1, low_modes)
    named = {"candidates": names, "masses": loops.Masses(**MASS), "solves": solves, "sample": sample}
    return solver_trials(dslash, *upstream, at=at, noise=Noise(**NOISE), **named)


def first_iterations(
    dslash: StaggeredDslash, upstream: Any, name: str, mass: str, accuracy: str, **options: Any
) -> list[int]:
    """Of the first blocks of a chunk of the campaign on even and odd sites."""
    candidate = Candidate.parse(name)
    at = At(**AT, noise=(0, 1))
    solve = Solve(candidate.solver, TOLERANCE[accuracy], candidate.precision, block=candidate.block)
    loops.current_loops(
        dslash, *upstream, at=at, mass=MASS[mass], solve=solve, noise=Noise(**NOISE), **options
    )
    iterations = at.statistics["iterations"]
    return [iterations[0], iterations[len(iterations) // 2]]


def of_systems(mass: str, accuracy: str) -> list[int]:
    """Places of the systems of a mass and an accuracy, even and odd."""
    return [k for k, name in enumerate(SYSTEMS) if name.startswith(f"{mass} {accuracy} ")]


def test_they_are_the_first_blocks(dslash: StaggeredDslash, deflation: StaggeredSpace) -> None:
    """On both parities, in the candidate's precision and block."""
    at, names = At(**AT), [*PLAIN, *DEFLATED, *OTHERS]
    found = trials(at, dslash, deflation, candidates=names)
    assert found.seconds_per_rhs.shape == (6, 8) and (found.seconds_per_rhs > 0).all()
    assert (found.residual <= [1e-3, 1e-3, 1e-8, 1e-8] * 2).all()
    planned = at.statistics["planned"]
    assert at.statistics["columns"] == 8
    assert planned == {name: 512 if "sloppy" in name else 128 for name in SYSTEMS}
    assert at.statistics["how"] == dict.fromkeys(names, "converged")
    for name, mass, accuracy in (
        (PLAIN[0], "light", "fine"),
        (PLAIN[1], "strange", "sloppy"),
        (DEFLATED[1], "light", "fine"),
        (OTHERS[0], "light", "fine"),
        (OTHERS[1], "light", "fine"),
    ):
        upstream = [deflation] if name in DEFLATED else []
        expected = first_iterations(dslash, upstream, name, mass, accuracy)
        assert found.iterations[names.index(name), of_systems(mass, accuracy)].tolist() == expected


def test_parts_of_the_low_modes(dslash: StaggeredDslash, deflation: StaggeredSpace) -> None:
    """Those of a space that has no more; their search takes its products, and the square of the rest."""
    at, names = At(**AT), [DEFLATED[0].replace("deflated", f"deflated/{n}") for n in (4, 2)]
    found = trials(at, dslash, deflation, candidates=names)
    for row, part in enumerate((4, 2)):
        lowest = deflation.lowest(len(deflation) // part)
        assert len(lowest) == len(deflation) // part
        expected = first_iterations(dslash, [lowest], names[row], "light", "fine")
        assert found.iterations[row, of_systems("light", "fine")].tolist() == expected
    product = np.min(found.seconds_per_rhs / found.iterations)
    search, without = (
        Eigensolve(9 * product, 5, names[0].split()[2]),
        costs(found, names, at.statistics, Eigensolve()),
    )
    cost = costs(found, names, at.statistics, search)
    taken = [(cost[name] - without[name]) / product for name in names]
    np.testing.assert_allclose(taken, [5 + 4 / 16, 5 + 4 / 4], rtol=1e-6)
    of_others = [search.of(name, found, names) for name in (PLAIN[0], DEFLATED[0])]
    assert of_others == [0, 9 * product]
    none = found._replace(iterations=found.iterations * [[0], [1]])  # as of vectors that span the space
    with np.errstate(divide="raise"):
        assert np.isfinite(search.of(names[1], none, names))


def test_of_the_remainder_where_low_modes_are_exact(dslash, deflation):
    at = At(**AT)
    options: dict[str, Any] = {"fine": None, "planned": [64, 0], "deflated_noise": True}
    found = trials(at, dslash, deflation, candidates=DEFLATED, **options)
    assert np.isnan(found.iterations[:, of_systems("light", "fine")]).all()
    expected = first_iterations(dslash, [deflation], PLAIN[0], "light", "sloppy", deflated_noise=True)
    assert found.iterations[0, of_systems("light", "sloppy")].tolist() == expected
    assert at.statistics["planned"]["light fine even"] == 0


def iterations_as_seconds(solver: Solver, operator: Any, b: Any, watch: Any) -> tuple[float, Solution]:
    solution = solver.solve(operator, b)
    return float(solution.iterations), solution


class WithoutOddPartners(StaggeredSpace):
    """A deflation that serves the even sites alone."""

    def correction(self, A: NormalOperator) -> Correction:
        correction = super().correction(A)
        return correction if A.parity == EVEN else replace(correction, shift=1e30)


def test_vectors_that_fail_on_odd_sites_are_not_chosen(dslash, deflation, monkeypatch):
    """With an eigensolve that takes three quarters of what good vectors save; seconds are iterations."""
    monkeypatch.setattr(trial, "repeated", iterations_as_seconds)
    at, parameters = At(**AT), {"candidates": [*PLAIN, *DEFLATED]}
    good, spoiled = (
        trials(at, dslash, space, **parameters)
        for space in (deflation, WithoutOddPartners(dslash, deflation.even))
    )
    tried = parameters["candidates"], at.statistics
    without = costs(good, *tried, Eigensolve())
    gain = min(without[name] for name in PLAIN) - min(without[name] for name in DEFLATED)
    setup = Eigensolve(0.75 * gain)
    assert cheapest(costs(good, *tried, setup)) in DEFLATED
    on_even = [array[:, ::2].repeat(2, axis=1) for array in spoiled[1:]]
    assert cheapest(costs(SolverTrials(spoiled.setup_seconds, *on_even), *tried, setup)) in DEFLATED
    assert cheapest(costs(spoiled, *tried, setup)) in PLAIN


def test_nothing_converges_or_there_are_no_low_modes(dslash: StaggeredDslash) -> None:
    with pytest.raises(
        InputError,
        match=r"batched_cg double-single 8: light sloppy even, 8 of 8 .*; block_cgrq .* a larger mass$",
    ):
        trials(At(**AT), dslash, candidates=PLAIN, max_iterations=2)

    with pytest.raises(InputError, match="needs low modes: give a deflation"):
        trials(At(**AT), dslash, candidates=DEFLATED)


@pytest.mark.gpu
def test_links_on_a_device_are_those_of_a_campaign() -> None:
    """Of each candidate's precision and block, and every candidate converges as on the host."""
    pytest.importorskip("cupy")
    gauge = configuration.heatbath_configuration(
        at=At(**AT), extents=(4, 4, 4, 8), beta=6.0, seed=31, sweeps=4, overrelaxation=1
    )
    names = [*PLAIN, "block_cgrq double 16", "batched_cg double-half 16", "batched_cg double 4"]
    found = []
    for backend in ("cpu", "cuda"):
        at = At(**AT, backend=backend)
        links = {"boundary": "antiperiodic", "naik_epsilon": 0.0}
        made = operators.hisq_operator(gauge, at=at, **links, solves=ExpectedSolves("auto", "double-half"))
        found.append(trials(at, made, candidates=names))
        assert at.statistics["how"] == dict.fromkeys(names, "converged")
    np.testing.assert_allclose(found[1].iterations, found[0].iterations, rtol=0.1, atol=2)
    layouts = Layouts(made)
    for candidate in map(Candidate.parse, names):
        expected = ExpectedSolves(candidate.solver, candidate.precision, candidate.block)
        assert layouts.of(candidate).packing == expected.packing

"""Solves of M x = b in blocks, against the dense inverse."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import MULTIGRID, REGULAR, WHOLE_PRECISIONS, Solve
from stages.lqcd.solvers.solution import NotConverged


def make_method(solver: str, precision: str, tolerance: float, max_iterations: int) -> EvenOdd:
    return EvenOdd(Solve(solver, tolerance, precision, max_iterations).of_regular(), WilsonSchur)


@pytest.fixture(scope="module")
def sources(operator: WilsonOperator) -> NDArray:
    rng = np.random.default_rng(515)
    shape = (*operator.shape, 4)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


PAIRS = [
    ("bicgstab", "double"),
    ("bicgstab", "double-single"),
    ("bicgstab", "double-half"),
    ("gcr", "double-half"),
    ("cgnr", "double-single"),
    ("cgnr", "double-half"),
    *(
        pytest.param(solver, precision, marks=pytest.mark.slow)
        for solver, precision in product(REGULAR, WHOLE_PRECISIONS)
        if solver != MULTIGRID  # which needs a hierarchy: tests/multigrid
        and (solver, precision) not in (("cgnr", "double-single"), *product(["bicgstab"], WHOLE_PRECISIONS))
    ),
]


@pytest.mark.parametrize(("solver", "precision"), PAIRS)
def test_solutions_are_those_of_the_inverse(operator, inverse, sources, solver, precision):
    reports: list[tuple[int, int]] = []
    method = make_method(solver, precision, 1e-10, 500)
    x, made = propagate(operator, sources, method, 2, lambda *done: reports.append(done))
    expected = np.tensordot(inverse, sources, axes=3)
    assert np.abs(x - expected).max() < 1e-8 * np.abs(expected).max()
    assert reports == [(1, 2), (2, 2)]
    assert [len(block) for block in made.residual] == [2, 2]
    assert max(block.max() for block in made.residual) <= 1e-10
    true = np.linalg.norm((sources - operator.apply(x)).reshape(-1, 4), axis=0)
    relative = true / np.linalg.norm(sources.reshape(-1, 4), axis=0)
    np.testing.assert_allclose(np.concatenate(made.full_residual), relative, rtol=1e-3)
    assert made.status == "converged" and len(made.iterations) == 2 and made.seconds > 0


def test_a_missed_tolerance_is_an_error_with_the_remedy(operator: WilsonOperator, sources: NDArray) -> None:
    with pytest.raises(NotConverged, match=r"missed the tolerance 1e-10 .* raise max_iterations"):
        propagate(operator, sources, make_method("cgnr", "double-single", 1e-10, 5), 2)


def test_beyond_the_critical_kappa_the_status_says_so(operator: WilsonOperator, sources: NDArray) -> None:
    """m = -2.5, kappa = 0.33: the spectrum lies around zero."""
    beyond = replace(operator, mass=-2.5, _precisions={})
    method = make_method("bicgstab", "double-single", 1e-10, 1000)
    with pytest.raises(NotConverged, match=r"larger mass") as failed:
        propagate(beyond, sources, method, 2)
    assert failed.value.solution.status.name in ("DIVERGED", "BREAKDOWN", "STAGNATED", "ITERATION_LIMIT")


def test_unknown_names_are_refused(operator: WilsonOperator, sources: NDArray) -> None:
    with pytest.raises(InputError, match=r"solver must be one of .*bicgstab, cgnr.*, got 'cg'"):
        make_method("cg", "double", 1e-10, 5)
    with pytest.raises(InputError, match=r"precision must be one of double, .*, double-half, got 'half'"):
        make_method("gcr", "half", 1e-10, 5)
    with pytest.raises(InputError, match="at least 1, got 0"):
        propagate(operator, sources, make_method("cgnr", "double", 1e-10, 5), 0)

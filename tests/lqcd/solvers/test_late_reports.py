"""Batched CG that reads its residuals one iteration late, as on a device, decides the same."""

import numpy as np
import pytest

from stages.lqcd.kernels import stream
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.solution import SolveStatus

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture
def late(monkeypatch):
    """late(solver, A, b, **options): the solution with reports that arrive one iteration late."""

    def solve(solver, *system, **options):
        with monkeypatch.context() as patch:
            patch.setattr(stream, "lag", lambda xp: 1)
            return solver.solve(*system, **options)

    return solve


def test_an_iteration_after_convergence_changes_no_bit(late, staggered, random_block):
    A = staggered("hisq", 0.1)
    b = random_block(91, *A.shape, 1)
    solver = BatchedCG(1e-11)
    expected, solution = solver.solve(A, b), late(solver, A, b)
    assert expected.extras["replacements"] == solution.extras["replacements"] == 1
    assert solution.iterations == expected.iterations
    assert np.array_equal(solution.history, expected.history)
    assert np.array_equal(solution.x, expected.x)
    assert solution.matvecs == expected.matvecs + 1


@pytest.mark.parametrize("precision", [pytest.param("double", marks=pytest.mark.slow), "double-single"])
def test_narrowing_and_replacements_cost_few_iterations(late, staggered, random_block, precision):
    A = staggered("naive", 0.02)
    b = random_block(93, *A.shape, 16)
    b[..., :9] *= np.geomspace(1, 1e-6, 9)
    solver = BatchedCG(1e-11, precision=precision)
    expected, solution = solver.solve(A, b), late(solver, A, b)
    assert solution.status is SolveStatus.CONVERGED and (solution.residual <= 1e-11).all()
    assert abs(solution.iterations - expected.iterations) <= 0.08 * expected.iterations
    np.testing.assert_allclose(solution.x, expected.x, atol=1e-7 * np.abs(expected.x).max())


def test_the_limit_of_iterations_is_kept(late, staggered, random_block):
    A = staggered("naive", 0.01)
    b = random_block(95, *A.shape, 3)
    solver = BatchedCG(1e-10, max_iterations=7)
    expected = solver.solve(A, b, on_failure="return")
    solution = late(solver, A, b, on_failure="return")
    assert solution.status is SolveStatus.ITERATION_LIMIT and solution.iterations == 7
    assert np.array_equal(solution.x, expected.x) and solution.matvecs == expected.matvecs


def test_breakdowns_are_noticed(late, dense, random_block):
    solver = BatchedCG(1e-8)
    indefinite, poisoned = dense(13, np.linspace(-1, 2, 60)), dense(18, np.linspace(1, 2, 60))
    poisoned.matrix[3, 7] = np.nan
    for A, status in ((indefinite, SolveStatus.INDEFINITE), (poisoned, SolveStatus.NOT_FINITE)):
        solution = late(solver, A, random_block(14, *A.shape, 5), on_failure="return")
        assert solution.status is status and np.isfinite(solution.x).all()

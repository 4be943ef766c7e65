"""Iterations that nobody looks at are done in one compiled call, and are the same."""

import numpy as np
import pytest

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.recurrence import BreakdownError, Unattended
from stages.lqcd.solvers.solution import SolveStatus


@pytest.mark.parametrize(("rhs", "inner"), [(1, "single"), pytest.param(2, None, marks=pytest.mark.slow)])
def test_no_look_changes_a_bit(staggered, random_block, rhs, inner):
    """A report of progress looks at every iteration; two columns converge, and leave, one after the other."""
    A = staggered("hisq", 0.1)
    b = random_block(71, *A.shape, rhs)
    b[1:, :, 1:] = 0
    solver, seen = BatchedCG(1e-9, inner=inner), []
    watched = solver.solve(A, b, progress=lambda iteration, residuals: seen.append(iteration))
    alone = solver.solve(A, b)
    assert seen == list(range(1, alone.iterations + 1))
    assert np.array_equal(alone.x, watched.x) and np.array_equal(alone.history, watched.history)
    assert (alone.matvecs, alone.extras) == (watched.matvecs, watched.extras)


def test_the_limit_of_iterations_is_kept(staggered, random_block):
    A = staggered("hisq", 0.1)
    solution = BatchedCG(1e-10, max_iterations=7).solve(A, random_block(73, *A.shape, 1), on_failure="return")
    assert solution.status is SolveStatus.ITERATION_LIMIT and solution.iterations == 7


class BreaksAtTheThird:
    """A step whose third |r|^2 is not finite."""

    def __call__(self) -> None:
        raise AssertionError("one burst is to be enough")

    def burst(self, coefficients: CGCoefficients, ceiling2, delta, reports) -> int:
        reports[:3, 0, 0], reports[:3, 1, 0] = (4, 1, np.nan), 1
        return 3


def test_what_came_before_a_breakdown_is_told(staggered, random_block):
    A = staggered("hisq", 0.1)
    recurrence = BatchedCG().begin(A, random_block(79, *A.shape, 1), np.array([1e-6]))
    assert isinstance(recurrence, Unattended) and recurrence.unattended
    recurrence.step = BreaksAtTheThird()
    assert np.array_equal(recurrence.run(9, 0.0), [[2], [1]])
    with pytest.raises(BreakdownError, match="finite"):
        recurrence.run(9, 0.0)

"""Solves that cannot succeed say so, by name, with the remedy."""

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.solution import NotConverged, SolveStatus

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture(params=[BatchedCG, BlockCGrQ])
def method(request):
    def make(*arguments, **options):
        return request.param(*arguments, **options)

    return make


@pytest.mark.parametrize("inner", [None, "single"])
def test_iteration_limit(method, staggered, random_block, inner):
    A = staggered("naive", 0.01)
    b = random_block(11, *A.shape, 3)
    with pytest.raises(
        NotConverged, match=r"3 of 3 .*tolerance 1e-10 .*after 7 iterations.*raise max_iterations"
    ) as e:
        method(1e-10, max_iterations=7, inner=inner).solve(A, b)
    solution = e.value.solution
    assert solution.status is SolveStatus.ITERATION_LIMIT and solution.iterations == 7
    difference = np.linalg.norm((b - A.apply(solution.x)).reshape(-1, 3), axis=0)
    np.testing.assert_allclose(
        solution.residual, difference / np.linalg.norm(b.reshape(-1, 3), axis=0), rtol=1e-8
    )
    returned = method(1e-10, max_iterations=7, inner=inner).solve(A, b, on_failure="return")
    assert returned.status is SolveStatus.ITERATION_LIMIT
    np.testing.assert_array_equal(returned.x, solution.x)


def test_tolerance_below_rounding(method, staggered, random_block):
    A = staggered("naive", 0.02).astype(np.complex64)
    b = random_block(12, *A.shape, 4, dtype=np.complex64)
    with pytest.raises(NotConverged, match=r"stopped falling .*loosen the tolerance, solve in double") as e:
        method(1e-11).solve(A, b)
    solution = e.value.solution
    assert solution.status is SolveStatus.STAGNATED
    assert (solution.residual > 1e-8).all() and (solution.residual < 1e-4).all()


def test_indefinite_operator(method, dense, random_block):
    A = dense(13, np.linspace(-1, 2, 60))
    solution = method(1e-8).solve(A, random_block(14, *A.shape, 5), on_failure="return")
    assert solution.status is SolveStatus.INDEFINITE
    assert np.isfinite(solution.x).all()


def test_negative_definite_operator(method, dense, random_block):
    A = dense(15, -np.linspace(1, 2, 60))
    with pytest.raises(NotConverged, match="not positive definite"):
        method(1e-8).solve(A, random_block(16, *A.shape, 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_right_hand_side_that_is_not_finite(method, staggered, random_block, bad):
    A = staggered("hisq", 0.1)
    b = random_block(17, *A.shape, 3)
    b[5, 1, 2] = bad
    with pytest.raises(NotConverged, match="NaN or infinite: check the gauge links"):
        method(1e-8).solve(A, b)


def test_operator_that_is_not_finite(method, dense, random_block):
    A = dense(18, np.linspace(1, 2, 60))
    A.matrix[3, 7] = np.nan
    solution = method(1e-8).solve(A, random_block(19, *A.shape, 3), on_failure="return")
    assert solution.status is SolveStatus.NOT_FINITE
    assert np.isfinite(solution.x).all()


def test_system_is_checked(method, staggered, random_block):
    A = staggered("hisq", 0.1)
    b = random_block(20, *A.shape, 2)
    with pytest.raises(
        InputError, match="Hermitian positive definite operator, which StaggeredOperator is not"
    ):
        method().solve(StaggeredOperator(A.dslash, 0.1), b)
    with pytest.raises(InputError, match=r"b must be complex128 .*, got complex64"):
        method().solve(A, b.astype(np.complex64))
    with pytest.raises(
        InputError, match=r"b must be complex128 \(128, 3, 'N'\).*got complex128 \(127, 3, 2\)"
    ):
        method().solve(A, b[1:])
    with pytest.raises(InputError, match="x0 must be"):
        method().solve(A, b, x0=b[..., :1])
    with pytest.raises(InputError, match="on_failure must be 'raise' or 'return', got 'ignore'"):
        method().solve(A, b, on_failure="ignore")

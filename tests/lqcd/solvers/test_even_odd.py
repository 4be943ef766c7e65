"""Solves of M = 2 m + D through its even sites: the dense inverse, both residuals, gauge covariance."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd, full_residual, propagate
from stages.lqcd.solvers.solution import NotConverged, SolveStatus
from support.matrices import matrix_of
from workflows.certification.fields import rotated

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE = Lattice((4, 4, 2, 4))


@pytest.fixture(params=[BatchedCG(1e-12), BlockCGrQ(1e-12, precision="double-single")])
def solver(request):
    return request.param


@pytest.fixture
def operator(dslash):
    return StaggeredOperator(dslash, 0.1)


@pytest.fixture(scope="module")
def dense_operator(dslash):
    """M of mass 0.1 as a matrix on ``[parity, site, colour]``."""
    full = StaggeredOperator(dslash, 0.1)
    return matrix_of(full.apply, full.shape)


def test_is_the_dense_inverse(operator, solver, dense_operator, random_block):
    b = random_block(7, *operator.shape, 3)
    solution = solve(operator, solver, b)
    exact = np.linalg.solve(dense_operator, b.reshape(-1, 3))
    np.testing.assert_allclose(solution.x.reshape(-1, 3), exact, atol=1e-9)
    assert solution.status is SolveStatus.CONVERGED and (solution.residual <= 1e-12).all()


def test_both_residuals_are_recorded(operator, random_block):
    """The one of the full system, with the odd sites reconstructed, is that of the even sites over 2 m."""
    b = random_block(9, *operator.shape, 4)
    loose = BatchedCG(1e-5)
    solution = solve(operator, loose, b)
    difference = (operator.apply(solution.x) - b).reshape(-1, 4)
    full = np.linalg.norm(difference, axis=0) / np.linalg.norm(b.reshape(-1, 4), axis=0)
    np.testing.assert_allclose(full_residual(operator, solution.x, b), full, rtol=1e-10)
    source = 2 * 0.1 * b[EVEN] - operator.dslash.apply_to(EVEN, b[ODD])
    ratio = np.linalg.norm(source.reshape(-1, 4), axis=0) / np.linalg.norm(b.reshape(-1, 4), axis=0) / 0.2
    np.testing.assert_allclose(full, ratio * solution.residual, rtol=1e-6)


@pytest.mark.parametrize(("where", "parity"), [("b", EVEN), ("b", ODD), ("x0", EVEN)])
def test_a_column_that_is_not_finite_is_zero_on_both_parities(operator, solver, random_block, where, parity):
    b = random_block(11, *operator.shape, 3)
    x0 = random_block(12, *operator.shape[1:], 3)
    (b if where == "b" else x0[None])[parity, 5, 1, 1] = np.nan
    solution = EvenOdd(solver, StaggeredSchur).solve(operator, b, x0=x0, on_failure="return")
    assert solution.status is SolveStatus.NOT_FINITE and not solution.x[..., 1].any()
    assert np.isnan(solution.residual[1]) and (solution.residual[[0, 2]] <= 1e-12).all()


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_sources_on_one_parity(operator, solver, random_block, parity):
    b = np.zeros((*operator.shape, 2), complex)
    b[parity] = random_block(11, *operator.shape[1:], 2)
    solution = solve(operator, solver, b)
    assert (full_residual(operator, solution.x, b) < 1e-10).all()


def test_options_and_first_guess_reach_the_solver(operator, random_block):
    b = random_block(13, *operator.shape, 2)
    short = BatchedCG(1e-10, max_iterations=3)
    with pytest.raises(NotConverged):
        solve(operator, short, b)
    assert solve(operator, short, b, on_failure="return").status is SolveStatus.ITERATION_LIMIT
    x = solve(operator, BatchedCG(1e-12), b).x
    again = solve(operator, short, b, x0=x[EVEN])
    assert again.iterations == 0 and np.array_equal(again.x, x)


def test_right_hand_side_is_checked(operator, random_block):
    b = random_block(15, *operator.shape, 2)
    with pytest.raises(InputError, match=r"is complex128 \(2, 64, 3, 'N'\), got complex64"):
        solve(operator, BatchedCG(), b.astype(np.complex64))
    with pytest.raises(InputError, match=r"got complex128 \(64, 3, 2\)"):
        solve(operator, BatchedCG(), b[0])


@pytest.mark.parametrize("action", ["hisq", "naive"])
def test_gauge_covariance(thin_links, random_block, solver, action):
    """Links G(x) U G(x+mu)^dag and source G b give the solution G x."""
    g = np.linalg.qr(random_block(17, 2, LATTICE.half_volume, 3, 3))[0]
    g[..., 0] /= np.linalg.det(g)[..., None]
    plain, transformed = (
        StaggeredOperator(StaggeredDslash(links_of(action, thin)), 0.2)
        for thin in (thin_links, rotated(thin_links, g, LATTICE))
    )
    b = random_block(19, *plain.shape, 2)
    x = solve(plain, solver, b).x
    np.testing.assert_allclose(solve(transformed, solver, g @ b).x, g @ x, atol=1e-9)


def test_a_source_that_is_not_finite_is_named_by_its_number_in_all_blocks(operator, random_block):
    b = random_block(21, *operator.shape, 7)
    b[ODD, 5, 1, 4] = np.nan
    with pytest.raises(NotConverged, match=r"^right-hand side 4 is not finite"):
        propagate(operator, b, EvenOdd(BatchedCG(1e-8), StaggeredSchur), 3)


def solve(operator, solver, b, **options):
    return EvenOdd(solver, StaggeredSchur).solve(operator, b, **options)


def links_of(action, thin):
    with kernels_of("cpu"):
        if action == "naive":
            return naive_links(thin, LATTICE, boundary="antiperiodic")
        return hisq_links(thin, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)

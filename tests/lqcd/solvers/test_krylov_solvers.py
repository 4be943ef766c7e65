"""Conjugate gradients of a batch and of a block: compiled kernels, cost, narrowing."""

from dataclasses import replace

import numpy as np
import pytest
from test_every_solver import check

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import array_module, as_numpy, kernels_of, to_device_like
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.recurrence import WIDTHS
from support.matrices import relative_residuals

pytestmark = pytest.mark.usefixtures("reference_kernels")

METHODS = (BatchedCG, BlockCGrQ)


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dependent", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("precision", ["double-single", pytest.param("double", marks=pytest.mark.slow)])
def test_with_compiled_kernels(method, precision, staggered, random_block, backend, dependent):
    """The blocks and coefficients live where the kernels run; x, narrowing and counts come out as the
    reference's; on so few sites each cycle exhausts the Krylov space, and counts in single precision vary.
    """
    solver = method(1e-11, precision=precision)
    A, plain = staggered("hisq", 0.1, backend), staggered("hisq", 0.1)
    b = random_block(31, *A.shape, 16 if dependent else 3)
    if dependent:
        b[..., 7:] = b[..., :7] @ random_block(32, 7, 9)
        b[..., 3] = 0
    with kernels_of("cpu"):
        own = replace(A, dslash=replace(A.dslash, _precisions={}))
        solution = solver.solve(own, to_device_like(b, A.dslash.links.fat))
    assert array_module(solution.x) is array_module(A.dslash.links.fat)
    check(plain, b, replace(solution, x=as_numpy(solution.x)), 1e-11)
    expected = solver.solve(plain, b)
    assert abs(solution.iterations - expected.iterations) <= 0.3 * expected.iterations
    np.testing.assert_allclose(as_numpy(solution.x), expected.x, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("precision", ["double", "double-single"])
def test_statistics(method, precision, dense, random_block):
    A = dense(47, np.geomspace(0.01, 4, 120))
    b = random_block(48, *A.shape, 6)
    seen = []
    solution = method(1e-9, precision=precision).solve(
        A, b, progress=lambda iteration, residuals: seen.append((iteration, residuals))
    )
    assert solution.matvecs == sum(A.widths)
    assert solution.history.shape == (solution.iterations + 1, 6)
    assert (solution.history[0] == 1).all()
    assert (solution.history[-1] <= 1.01 * 1e-9).all()
    assert [iteration for iteration, _ in seen] == list(range(1, solution.iterations + 1))
    np.testing.assert_array_equal([residuals for _, residuals in seen], solution.history[1:])
    assert solution.seconds > 0 and solution.extras["replacements"] >= 1


def test_inner_operator_may_be_wrong(dense, random_block):
    """Reliable updates correct any inner operator that is close: here it is off by 1e-3, not by rounding."""
    A = dense(53, np.geomspace(0.05, 5, 150))

    class Deviating(type(A)):
        def astype(self, dtype):
            return type(A)((self.matrix * (1 + 1e-3 * np.cos(np.arange(150)))).astype(dtype))

    b = random_block(54, *A.shape, 4)
    for method in (BatchedCG, BlockCGrQ):
        check(A, b, method(1e-12, precision="double-single").solve(Deviating(A.matrix), b), 1e-12)


@pytest.mark.parametrize(("method", "limit"), [(BatchedCG, 1.1), (BlockCGrQ, 1.5)])
def test_reliable_updates_keep_the_search_directions(method, limit, larger, random_block):
    """Without them 1.2 and 1.7 times the iterations of double precision are needed here."""
    A = larger("hisq", 0.1)
    b = random_block(59, *A.shape, 2)
    double, mixed = (method(1e-12, precision=i).solve(A, b) for i in ("double", "double-single"))
    assert mixed.extras["replacements"] >= 4 > double.extras["replacements"]
    assert mixed.iterations < limit * double.iterations


def test_block_needs_fewer_iterations(staggered, random_block):
    ratio = {}
    for mass in (0.5, 0.005):
        A = staggered("naive", mass)
        b = random_block(61, *A.shape, 16)
        block, batched = (m(1e-10).solve(A, b) for m in (BlockCGrQ, BatchedCG))
        assert block.iterations <= batched.iterations
        ratio[mass] = block.iterations / batched.iterations
    assert ratio[0.005] < ratio[0.5] and ratio[0.005] < 0.5


def test_block_terminates_with_its_krylov_space(dense, random_block):
    """48 dimensions are exhausted by 8 right-hand sides in 6 steps."""
    A = dense(67, np.linspace(1, 2, 48))
    solution = BlockCGrQ(1e-12).solve(A, random_block(68, *A.shape, 8))
    assert solution.iterations <= 6


def test_converged_right_hand_sides_stop_costing(dense, basis, random_block):
    """14 of 16 are eigenvectors, solved in one step: the others go on in a block of two."""
    A = dense(71, np.geomspace(0.01, 4, 150))
    b = random_block(72, 150, 16)
    b[:, :14] = basis(71, 150)[:, 3:45:3]
    b = b.reshape(*A.shape, 16)
    solution = BatchedCG(1e-10).solve(A, b)
    check(A, b, solution, 1e-10)
    assert set(A.widths) <= {16, *WIDTHS} and min(A.widths) <= 2
    assert solution.matvecs < 2.3 * solution.iterations + 3 * 16


def test_dependent_block_narrows(dense, random_block):
    """16 right-hand sides of rank 7 are iterated as a block of 8."""
    A = dense(73, np.geomspace(0.01, 4, 150))
    b = (random_block(74, 150, 7) @ random_block(75, 7, 16)).reshape(*A.shape, 16)
    solution = BlockCGrQ(1e-11).solve(A, b)
    assert sorted(set(A.widths)) == [8, 16]
    assert A.widths.count(16) == solution.extras["replacements"]
    check(A, b, solution, 1e-11)


def test_invariant_subspace_narrows_the_block_on_the_way(dense, basis, random_block):
    """12 right-hand sides in a space of 20 eigenvectors: the second step has 8 directions, a third none."""
    A = dense(77, np.linspace(1, 3, 150))
    b = (basis(77, 150)[:, 40:60] @ random_block(78, 20, 12)).reshape(*A.shape, 12)
    solution = BlockCGrQ(1e-12).solve(A, b)
    check(A, b, solution, 1e-12)
    assert A.widths[:2] == [12, 8] and solution.iterations <= 4


def test_single_precision_throughout(staggered, random_block):
    A = staggered("hisq", 0.2).astype(np.complex64)
    b = random_block(79, *A.shape, 8, dtype=np.complex64)
    for method in (BatchedCG, BlockCGrQ):
        solution = method(5e-6).solve(A, b)
        assert solution.x.dtype == np.complex64
        assert (relative_residuals(staggered("hisq", 0.2), solution.x.astype(complex), b) < 1e-5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must lie between 0 and 1, got 0.0"),
        ({"tolerance": 2.0}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations must be a whole number of at least 1, got 0"),
        (
            {"precision": "quarter"},
            "precision must be one of double, .*half, got 'quarter'",
        ),
    ],
)
def test_configuration_is_checked(options, message):
    with pytest.raises(InputError, match=message):
        BatchedCG(**options)

"""What all solvers do alike, on staggered and on Wilson-clover quarks, by one table of them."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import SolveStatus
from support.matrices import relative_residuals

pytestmark = pytest.mark.usefixtures("reference_kernels")

HEAVY, LIGHT = -0.5, -1.2
"""Masses of Wilson quarks."""


def in_both_precisions(name, method):
    precisions = {"double": "double", "single": "double-single"}
    return {f"{name}-{short}": partial(method, precision=given) for short, given in precisions.items()}


def normal(method):
    return lambda **options: NormalEquations(method(**options))


def corrected(method, inner):
    """Defect correction around a solver of so loose a tolerance."""
    return lambda tolerance, max_iterations=10_000: DefectCorrection(
        method(tolerance=inner, max_iterations=max_iterations), tolerance, max_iterations
    )


STAGGERED = {**in_both_precisions("cg", BatchedCG), **in_both_precisions("block", BlockCGrQ)}
WILSON = {
    **in_both_precisions("gcr", GCR),
    **in_both_precisions("bicgstab", BiCGstab),
    **in_both_precisions("cgnr", normal(BatchedCG)),
    "block-cgnr": normal(BlockCGrQ),
    "defect-bicgstab": corrected(BiCGstab, 1e-3),
    "defect-gcr": corrected(GCR, 1e-4),
}
SOLVERS = STAGGERED | WILSON


@pytest.fixture(params=SOLVERS)
def solver(request, staggered, wilson):
    """solver(tolerance, **options) of a row of the table; solver.operator(staggered, Wilson) for it."""

    def make(tolerance=1e-10, **options):
        return SOLVERS[request.param](tolerance=tolerance, **options)

    make.staggered = request.param in STAGGERED
    make.operator = lambda fields, mass: staggered(*fields) if make.staggered else wilson(mass)
    return make


def rows(*names):
    """The solvers of the quick run by name; the full run takes every row of the table."""
    values = [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in SOLVERS]
    return pytest.mark.parametrize("solver", values, indirect=True)


def check(A, b, solution, tolerance):
    assert solution.status is SolveStatus.CONVERGED
    assert (solution.residual <= tolerance).all()
    true = relative_residuals(A, solution.x, b)
    np.testing.assert_allclose(solution.residual, true, rtol=1e-2, atol=tolerance / 50)


OPERATORS = [(("hisq", 0.1), 5e-6), (("hisq", 0.1), 1e-12), (("naive", 0.02), 1e-12)]
QUICK = [(*OPERATORS[0], 33), (*OPERATORS[1], 1), (*OPERATORS[2], 8), (LIGHT, 1e-11, 3)]
CASES = [
    *product(STAGGERED, [(*operator, rhs) for operator in OPERATORS for rhs in (1, 3, 8, 16, 33)]),
    *product(WILSON, [(LIGHT, 1e-11, 3), (HEAVY, 1e-12, 1), (LIGHT, 1e-6, 8)]),
]


@pytest.mark.parametrize(
    ("solver", "operator", "tolerance", "rhs"),
    [pytest.param(name, *row, marks=() if row in QUICK else pytest.mark.slow) for name, row in CASES],
    indirect=["solver"],
)
def test_every_true_residual_reaches_the_tolerance(solver, random_block, operator, tolerance, rhs):
    """Naive quarks have a condition of 17000 here, about as large as still allows 1e-12."""
    A = solver.operator(operator, operator)
    b = random_block(29 + rhs, *A.shape, rhs)
    check(A, b, solver(tolerance).solve(A, b), tolerance)


@rows(*STAGGERED, "gcr-single", "bicgstab-single", "block-cgnr", "defect-gcr")
def test_zero_equal_and_dependent_right_hand_sides(solver, random_block):
    A = solver.operator(("naive", 0.02), HEAVY)
    b = random_block(37, *A.shape, 16 if solver.staggered else 12)
    b[..., [4, 9]] = 0
    b[..., 5] = b[..., 3]
    b[..., 6] = -2.5j * b[..., 1]
    b[..., 7] = b[..., 0] + 1e-7 * b[..., 2]
    b[..., 8] = b[..., 0] + b[..., 1] - b[..., 2]
    b[..., 10] *= 1e-9
    b[..., 11] *= 1e9
    tolerance = 1e-12 if solver.staggered else 1e-11
    solution = solver(tolerance).solve(A, b)
    check(A, b, solution, tolerance)
    assert not solution.x[..., [4, 9]].any() and not solution.residual[[4, 9]].any()
    np.testing.assert_allclose(solution.x[..., 5], solution.x[..., 3], atol=1e-9)


@rows("cg-single", "block-single", "gcr-single", "bicgstab-single", "cgnr-single", "defect-bicgstab")
def test_right_hand_sides_of_any_size(solver, random_block):
    """Squares of their residuals are far outside the range of single precision."""
    A = solver.operator(("hisq", 0.2), HEAVY)
    b = random_block(40, *A.shape, 3) * np.array([1e-40, 1, 1e60])
    if solver.staggered:
        A = replace(A, dslash=replace(A.dslash, _precisions={}))  # packed for other kernels
    with kernels_of("cpu" if solver.staggered else "reference"):
        check(A, b, solver(1e-12).solve(A, b), 1e-12)


def test_nothing_but_zeros(solver):
    A = solver.operator(("hisq", 0.1), HEAVY)
    solution = solver().solve(A, np.zeros((*A.shape, 3), complex), x0=np.ones((*A.shape, 3), complex))
    assert solution.status is SolveStatus.CONVERGED and solution.iterations == 0
    assert not solution.x.any()


@rows("cg-double", "block-single", "gcr-double", "bicgstab-single", "block-cgnr", "defect-bicgstab")
def test_block_equals_single_solves(solver, random_block):
    A = solver.operator(("hisq", 0.2), HEAVY)
    b = random_block(41, *A.shape, 3)
    together = solver(1e-12).solve(A, b)
    alone = [solver(1e-12).solve(A, np.ascontiguousarray(b[..., n : n + 1])) for n in range(3)]
    np.testing.assert_allclose(together.x, np.concatenate([s.x for s in alone], axis=-1), atol=1e-10)
    assert together.iterations <= max(s.iterations for s in alone) + 2


@rows("cg-single", "block-double", "gcr-single", "bicgstab-double", "block-cgnr", "defect-gcr")
def test_first_guess(solver, random_block):
    A = solver.operator(("hisq", 0.5), HEAVY)
    b = random_block(43, *A.shape, 2)
    rough, cold = (solver(tolerance).solve(A, b) for tolerance in (1e-6, 1e-9))
    guess = rough.x.copy()
    warm = solver(1e-9).solve(A, b, x0=guess)
    check(A, b, warm, 1e-9)
    assert 0 < warm.iterations < (0.6 if solver.staggered else 0.7) * cold.iterations
    assert np.array_equal(guess, rough.x)
    again = solver(1e-9).solve(A, b, x0=warm.x)
    assert again.iterations == 0 and np.array_equal(again.x, warm.x)

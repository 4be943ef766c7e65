"""Solves that cannot succeed say so, by name, with the remedy."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.recurrence import (
    PATIENCE,
    BreakdownError,
    Cycle,
    End,
    Plateau,
    Stagnation,
    StopRules,
)
from stages.lqcd.solvers.solution import NotConverged, SolveStatus
from stages.lqcd.solvers.sstep_cg import SStepCG
from support.matrices import relative_residuals
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture(params=[BatchedCG, BlockCGrQ])
def method(request):
    def make(*arguments, **options):
        return request.param(*arguments, **options)

    return make


@pytest.mark.parametrize("precision", ["double", "double-single"])
def test_iteration_limit(method, staggered, random_block, precision):
    A = staggered("naive", 0.01)
    b = random_block(11, *A.shape, 3)
    with pytest.raises(
        NotConverged, match=r"3 of 3 .*tolerance 1e-10 .*after 7 iterations.*raise max_iterations"
    ) as e:
        method(1e-10, max_iterations=7, precision=precision).solve(A, b)
    solution = e.value.solution
    assert solution.status is SolveStatus.ITERATION_LIMIT and solution.iterations == 7
    np.testing.assert_allclose(solution.residual, relative_residuals(A, solution.x, b), rtol=1e-8)
    returned = method(1e-10, max_iterations=7, precision=precision).solve(A, b, on_failure="return")
    assert returned.status is SolveStatus.ITERATION_LIMIT
    np.testing.assert_array_equal(returned.x, solution.x)


def test_tolerance_below_rounding(method, staggered, random_block):
    """Where the limit of iterations ends such a solve at the same moment, that is what is named."""
    A = staggered("naive", 0.05).astype(np.complex64)
    b = random_block(12, *A.shape, 4, dtype=np.complex64)
    with pytest.raises(NotConverged, match=r"stopped falling .*loosen the tolerance, solve in double") as e:
        method(1e-11).solve(A, b)
    solution = e.value.solution
    assert solution.status is SolveStatus.STAGNATED
    assert (solution.residual > 1e-8).all() and (solution.residual < 1e-4).all()
    limited = method(1e-11, solution.iterations).solve(A, b, on_failure="return")
    assert limited.status is SolveStatus.ITERATION_LIMIT and limited.iterations == solution.iterations


def test_indefinite_operator(method, dense, random_block):
    A = dense(13, np.linspace(-1, 2, 60))
    solution = method(1e-8).solve(A, random_block(14, *A.shape, 5), on_failure="return")
    assert solution.status is SolveStatus.INDEFINITE
    assert np.isfinite(solution.x).all()


def test_negative_definite_operator(method, dense, random_block):
    A = dense(15, -np.linspace(1, 2, 60))
    with pytest.raises(NotConverged, match="not positive definite"):
        method(1e-8).solve(A, random_block(16, *A.shape, 2))


REFUSED = (
    r"^right-hand side 2 is not finite \(counted from 0\), the other 3 reached the tolerance 1e-\d+: "
    "a residual is NaN or infinite: check the gauge"
)


@pytest.mark.parametrize(
    ("precision", "bad"),
    [
        ("double", np.nan),
        ("double-single", 1e200),
        *(pytest.param("double", bad, marks=pytest.mark.slow) for bad in (np.inf, 1e200)),
        *(pytest.param("double-single", bad, marks=pytest.mark.slow) for bad in (np.nan, np.inf)),
    ],
)
def test_right_hand_side_that_is_not_finite(method, staggered, random_block, precision, bad):
    """It costs no other: these have the bits that they have beside zeros."""
    A = staggered("hisq", 0.1)
    b = random_block(17, *A.shape, 4)
    b[5, 1, 2] = bad
    with pytest.raises(NotConverged, match=REFUSED) as e:
        method(1e-8, precision=precision).solve(A, b, x0=0.1 * b)
    assert e.value.solution.status is SolveStatus.NOT_FINITE
    b[..., 2] = 0
    expected = method(1e-8, precision=precision).solve(A, b, x0=0.1 * b)
    np.testing.assert_array_equal(e.value.solution.x, expected.x)
    np.testing.assert_array_equal(
        e.value.solution.residual, [*expected.residual[:2], np.nan, expected.residual[3]]
    )
    assert expected.residual.max() <= 1e-8


@pytest.mark.gpu
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_right_hand_side_that_is_not_finite_on_a_gpu(method, staggered, random_block, bad):
    cupy = pytest.importorskip("cupy")
    A, b = staggered("hisq", 0.1, "cuda"), cupy.asarray(random_block(17, 64, 3, 4))
    b[5, 1, 2] = bad
    with pytest.raises(NotConverged, match=REFUSED) as e:
        method(1e-8, precision="double-single").solve(A, b)
    assert np.flatnonzero(~(e.value.solution.residual <= 1e-8)).tolist() == [2]
    assert not e.value.solution.x[..., 2].any()


@pytest.mark.parametrize("value", [np.nan, 1e153, 1e300])
def test_first_guess_that_is_not_finite(method, dense, random_block, value):
    """A norm that overflows only after the operator was applied counts, too."""
    A = dense(31, np.linspace(1, 200, 60))
    b, x0 = random_block(32, *A.shape, 4), random_block(33, *A.shape, 4)
    x0[..., 2] = value
    with pytest.raises(NotConverged, match=REFUSED) as e:
        method(1e-8).solve(A, b, x0=x0)
    assert (e.value.solution.residual[[0, 1, 3]] <= 1e-8).all()


EVERY = {
    "cg": BatchedCG(1e-8),
    "cg-single": BatchedCG(1e-8, precision="double-single"),
    "block": BlockCGrQ(1e-8),
    "s-step": SStepCG(1e-8),
    "gcr": GCR(1e-8),
    "bicgstab": BiCGstab(1e-8),
    "cgnr": NormalEquations(BatchedCG(1e-8)),
    "cgnr-single": NormalEquations(BatchedCG(1e-8, precision="double-single")),
    "block-cgnr": NormalEquations(BlockCGrQ(1e-8)),
    "defect": DefectCorrection(GCR(1e-4), 1e-8),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e200])
@pytest.mark.parametrize("where", ["b", "x0"])
def test_every_solver_leaves_out_a_column_that_is_not_finite(dense, random_block, name, value, where):
    A = dense(36, np.linspace(1, 20, 48))
    b, x0 = random_block(37, *A.shape, 3), random_block(38, *A.shape, 3)
    (b if where == "b" else x0)[5, 1, 1] = value
    solution = EVERY[name].solve(A, b, x0=x0, on_failure="return")
    assert solution.status is SolveStatus.NOT_FINITE and solution.iterations < 100
    assert np.isnan(solution.residual[1]) and (solution.residual[[0, 2]] <= 1e-8).all()
    assert not solution.x[..., 1].any() and np.isfinite(solution.x).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("size", [1e17, 1e120, 1e152])
def test_a_guess_in_whose_rounding_b_is_lost_counts_as_zero(dense, random_block, name, size):
    """Such a guess once took hundreds of iterations for each 15 digits by which it is too large."""
    A = dense(36, np.linspace(1, 20, 48))
    b, x0 = random_block(37, *A.shape, 3), random_block(38, *A.shape, 3)
    x0[..., 1] *= size
    solution = EVERY[name].solve(A, b, x0=x0)
    assert solution.residual.max() <= 1e-8 and solution.iterations < 100


def test_right_hand_sides_that_are_not_finite_are_named_beside_other_failures(method, dense, random_block):
    A = dense(34, np.linspace(0.01, 2, 60))
    b = random_block(35, *A.shape, 4)
    b[3, 1, [0, 3]] = np.inf
    with pytest.raises(
        NotConverged,
        match=r"^right-hand sides 0, 3 are not finite .*, 2 of the other 2 missed .* \(largest "
        r"residual 0\.\d+ after 2 iterations\): .*raise max_iterations",
    ) as e:
        method(1e-8, max_iterations=2).solve(A, b)
    assert e.value.solution.status is SolveStatus.ITERATION_LIMIT
    with pytest.raises(
        NotConverged, match=r"^right-hand sides 0, 1 are not finite \(counted from 0\): a resid"
    ):
        method(1e-8).solve(A, np.full_like(b[..., :2], np.nan))


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
    refuses(r"b must be complex128 .*, got complex64", method().solve, A, b.astype(np.complex64))
    refuses(r"b must be complex128 \(64, 3, 'N'\).*got complex128 \(63, 3, 2\)", method().solve, A, b[1:])
    refuses("x0 must be", method().solve, A, b, x0=b[..., :1])
    refuses("on_failure must be 'raise' or 'return', got 'ignore'", method().solve, A, b, on_failure="ignore")
    refuses("b has no right-hand side", method().solve, A, b[..., :0])


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e-156])
def test_right_hand_sides_whose_squares_underflow_are_not_taken_for_zero(method, dense, random_block, size):
    A = dense(1, np.linspace(1, 2, 48))
    b = random_block(25, *A.shape, 3)
    b[..., 1] *= size
    refuses(r"right-hand side 1 is so small that its squares underflow", method(1e-8).solve, A, b)
    b[..., 1] = 0
    assert not method(1e-8).solve(A, b).x[..., 1].any()


def skewed(dense, seed, low, angle, coupling):
    """An operator of eigenvalues in a sector, with eigenvectors that are far from orthogonal."""
    rng = np.random.default_rng(seed)
    A = dense(seed, np.geomspace(low, 1, 48) * np.exp(1j * rng.uniform(-angle, angle, 48)))
    basis = np.linalg.eig(A.matrix)[1]
    A.matrix = A.matrix + coupling * low * basis @ np.triu(rng.normal(size=(48, 48)), 1) @ np.linalg.inv(
        basis
    )
    A.hermitian = A.positive_definite = False
    return A


@pytest.mark.parametrize(("seed", "angle", "low"), [(2, 2.0, 0.5), (1, 1.5, 0.8), (0, 1.5, 0.8)])
def test_estimates_that_rest_above_the_tolerance_end_the_solve(dense, random_block, seed, angle, low):
    """In one precision; without an end the residual of the recurrence wanders to the limit of iterations."""
    A = skewed(dense, seed, low, angle, 1.0)
    b = random_block(22, *A.shape, 2)
    with pytest.raises(
        NotConverged, match=r"stopped falling .*this precision reaches about \de-1\d here"
    ) as e:
        BiCGstab(1e-15, max_iterations=20_000).solve(A, b)
    solution = e.value.solution
    assert solution.status is SolveStatus.STAGNATED and solution.iterations < 5000
    assert (solution.residual < 1e-9).all()
    np.testing.assert_allclose(solution.residual, relative_residuals(A, solution.x, b), rtol=0.1)


def test_a_restarted_method_ends_where_its_fall_would_take_forever(dense, random_block):
    """Of eigenvalues around the origin; halvings of more than a thousand iterations go on."""
    around = 1 + 1.1 * np.exp(2j * np.pi * np.arange(99) / 99)
    solutions = []
    for eigenvalues in (around, np.geomspace(1e-4, 1, 60)):
        A = dense(26, eigenvalues)
        A.hermitian = A.positive_definite = False
        method = GCR(0.03, restart=2, precision="double-single")
        solutions.append(method.solve(A, random_block(27, *A.shape, 1), on_failure="return"))
    rests, falls = solutions
    assert rests.status is SolveStatus.STAGNATED and rests.iterations < 3000 and rests.residual > 0.2
    assert falls.status is SolveStatus.CONVERGED and falls.iterations > 3000


def test_short_cycles_that_are_all_taken_back_end_a_solve(dense, random_block):
    """In single precision only, each from the same x: they once went on to the limit of iterations."""
    spectrum = 1e-4 + np.linspace(0, 4.5, 601)[1:] ** 2
    A = type(dense(1, np.ones(3)))(np.diag(spectrum).astype(np.complex64))
    b = random_block(1, *A.shape, 33)[..., :1].astype(np.complex64)
    diagonal = np.diag(A.matrix).reshape(*A.shape, 1)
    A.apply = lambda x, out=None: np.multiply(diagonal, x, out=out)
    solution = SStepCG(1e-7, max_iterations=20_000).solve(A, b, on_failure="return")
    assert solution.status is SolveStatus.STAGNATED and solution.iterations < 5000
    assert solution.residual < 1e-6


@pytest.mark.parametrize("precision", ["double", "double-single"])
@pytest.mark.parametrize("limit", [5, 60, 150])
def test_no_solution_is_worse_than_zero(dense, random_block, precision, limit):
    A = skewed(dense, 3, 0.01, 3.1, 0.0)
    b = random_block(23, *A.shape, 3)
    solution = BiCGstab(1e-8, max_iterations=limit, precision=precision).solve(A, b, on_failure="return")
    assert solution.status is not SolveStatus.CONVERGED
    assert (solution.residual <= 1).all()
    np.testing.assert_allclose(solution.residual, relative_residuals(A, solution.x, b), rtol=1e-8)


def test_only_gains_that_estimates_show_and_residuals_do_not_count_as_rounding():
    norms, target = np.array([1.0, 1.0]), np.array([1e-8, 1e-8])
    watch = Stagnation(norms, 10**6)

    def replaced(estimate, true, iterations):
        before, norms[:] = norms.copy(), true
        return watch.enter(before, np.array(estimate), norms.copy(), target, iterations)

    assert not replaced([30.0, 0.6], [70.0, 0.9], 900)  # a rest of the estimates, however wrong
    assert not replaced([20.0, 0.8], [60.0, 0.9], 2000)
    assert replaced([30.0, 0.1], [60.0, 0.8], 3000)
    assert not watch.over(3000)
    assert not replaced([30.0, 0.2], [60.0, 0.4], 3100)  # a gain
    slowly = (4000, 5000, 6300)  # cycles of a restarted method
    for iterations in slowly:
        assert not watch.over(iterations)
        counts = [replaced([60.0, 0.32], [60.0, 0.4], iterations) for _ in range(4)]
        assert counts == [False, False, False, True]
    assert watch.over(6300)


@pytest.mark.parametrize(
    ("options", "estimates", "ends"),
    [
        ({}, [[0.5, 0.5], [0.2, 0.09]], [None, End.REPLACE]),
        ({}, [[8.0, 0.5], [0.9, 0.5], [0.7, 0.5]], [None, None, End.REPLACE]),  # from the largest since
        ({"fixed": True}, [[8.0, 0.5], [0.7, 0.5], [0.09, 0.5]], [None, None, End.REPLACE]),
        ({"delta": 0.0}, [[0.5, 0.5], [1e-7, 1e-7], [1e-8, 1e-8]], [None, None, End.CONVERGED]),
        ({}, [[0.5, 1e-9]], [None]),  # a column that is done asks for nothing
        ({"narrows": True}, [[0.5, 1e-9]], [End.REPLACE]),
        ({"max_iterations": 2}, [[0.5, 0.5], [0.5, 0.5]], [None, End.REPLACE]),
        ({"full": True}, [[0.5, 0.5]], [End.REPLACE]),
        ({}, [[101.0, 0.5]], [SolveStatus.DIVERGED]),
    ],
)
def test_ends_of_a_cycle(options, estimates, ends):
    given = {"delta": 0.1, "fixed": False, "narrows": False, "max_iterations": 9, **options}
    full = given.pop("full", False)
    ones = np.ones(2)
    cycle, found = Cycle(1e-8 * ones, ones, 100 * ones, plateau=Plateau(ones), **given), []
    for iterations, estimate in enumerate(estimates, start=1):
        try:
            found.append(cycle.end(iterations, np.array(estimate), full))
        except BreakdownError as error:
            found.append(error.status)
    assert found == ends


@pytest.mark.parametrize(
    ("patience", "floor", "falls", "rests"),
    [
        (0, np.inf, {10: 0.4}, 10 + PATIENCE),
        (0, np.inf, {10: 0.4, 150: 0.19, 300: 0.1}, 150 + PATIENCE),
        (2, np.inf, {10: 0.4, 150: 0.19}, 150 + 300),
        (0, 0.3, {10: 0.4}, None),
        (0, 0.3, {10: 0.4, 20: 0.19}, 20 + PATIENCE),
    ],
)
def test_estimates_rest_where_none_has_halved_for_long(patience, floor, falls, rests):
    """Only columns that are open count: another halves all the time."""
    plateau, estimate = Plateau(np.ones(2), floor, patience), np.ones(2)
    ends = []
    for iterations in range(500):
        estimate = np.array([falls.get(iterations, estimate[0]), estimate[1] / 2])
        ends.append(plateau.reached(iterations, estimate, np.array([True, False])))
    assert (ends.index(True) if any(ends) else None) == rests


def test_rounding_seen_in_one_precision_stays_seen():
    one = np.ones(1)
    rules = StopRules(one, 1e-8 * one, 100, 10**6, even_fall=False)
    for mixed, seen in ((True, False), (False, True), (True, True)):
        rules.replaced(one, 0.1 * one, 0.9 * one, 1, mixed)
        assert rules.rounding_seen is seen


class NoisyModes:
    """Corrections in the span of so many lowest eigenvectors with noise, which claim to be exact."""

    def __init__(self, A, vectors, noise, seed):
        rng = np.random.default_rng(seed)
        modes = np.linalg.eigh(A.matrix)[1][:, :vectors]
        self.V = np.linalg.qr(modes + noise * rng.normal(size=modes.shape))[0]
        self.inverse = np.linalg.inv(self.V.conj().T @ A.matrix @ self.V)

    def __len__(self):
        return len(self.inverse)

    def __call__(self, r):
        y = self.V @ (self.inverse @ (self.V.conj().T @ r.reshape(len(self.V), -1)))
        return y.reshape(r.shape), np.zeros(r.shape[-1])


@pytest.mark.parametrize(
    ("solver", "noise"),
    [
        (BatchedCG, None),
        (BatchedCG, 1e-3),
        pytest.param(BlockCGrQ, None, marks=pytest.mark.slow),
        (BlockCGrQ, 1e-3),
        (BiCGstab, None),
    ],
)
def test_mixed_and_deflated_solves_end_with_the_least_residual(dense, random_block, solver, noise):
    """The inner precision does not resolve the lowest modes: single, of a condition of 1e8."""
    A = dense(1, np.geomspace(1e-8, 1, 48))
    b = random_block(24, *A.shape, 3)
    apply, seen = A.apply, [np.ones(3)]

    def noting(x, out=None):
        result = apply(x, out)
        seen.append(
            np.linalg.norm((b - result).reshape(-1, 3), axis=0) / np.linalg.norm(b.reshape(-1, 3), axis=0)
        )
        return result

    A.apply = noting  # the outer operator: each application is a true residual
    deflate = None if noise is None else NoisyModes(A, 6, noise, 3)
    options = {"max_iterations": 20_000, "precision": "double-single"}
    solution = solver(1e-10, **options).solve(A, b, on_failure="return", deflate=deflate)
    expected = SolveStatus.DIVERGED if solver is BiCGstab else SolveStatus.STAGNATED
    if noise is not None and solution.status is SolveStatus.ITERATION_LIMIT:  # rounding decides whether
        assert solution.residual.max() < 0.1
    else:
        assert solution.status is expected and solution.iterations < 8_000
    assert (solution.residual <= 1.01 * np.min(seen, axis=0)).all()
    difference = np.linalg.norm((b - apply(solution.x)).reshape(-1, 3), axis=0)
    np.testing.assert_allclose(
        solution.residual, difference / np.linalg.norm(b.reshape(-1, 3), axis=0), rtol=1e-6
    )

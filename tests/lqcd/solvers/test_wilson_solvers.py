"""Solvers for operators that are not Hermitian, on Wilson-clover fields and small matrices."""

from dataclasses import replace

import numpy as np
import pytest
from test_every_solver import HEAVY, LIGHT, WILSON, check, normal

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import array_module, as_numpy, kernels_of, to_device_like
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.gcr import CYCLE_RESTART, GCR, gcr_correction
from stages.lqcd.solvers.named import MULTIGRID, REGULAR, Solve, workspace_of
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import NotConverged, SolveStatus

pytestmark = pytest.mark.usefixtures("reference_kernels")


def norms(field):
    return np.linalg.norm(field.reshape(-1, field.shape[-1]), axis=0)


@pytest.mark.parametrize("solver", WILSON.values(), ids=WILSON)
def test_solution_is_that_of_the_dense_matrix(solver, random_block):
    """Eigenvalues in a disc around one, and no symmetry at all."""
    size = 90
    matrix = np.eye(size) + 0.6 * random_block(5, size, size) / np.sqrt(size)
    A = Dense(matrix)
    b = random_block(6, *A.shape, 3)
    x = solver(tolerance=1e-12).solve(A, b).x
    np.testing.assert_allclose(x.reshape(size, 3), np.linalg.solve(matrix, b.reshape(size, 3)), atol=1e-9)


class Dense:
    """A matrix on fields ``[L, 3, N]``, not Hermitian."""

    hermitian = positive_definite = False
    xp = np

    def __init__(self, matrix):
        self.matrix, self.dtype, self.shape = matrix, matrix.dtype, (len(matrix) // 3, 3)

    @property
    def adjoint(self):
        return Dense(self.matrix.conj().T)

    def __eq__(self, other):
        return np.array_equal(self.matrix, other.matrix)

    def apply(self, x, out=None):
        result = (self.matrix @ x.reshape(len(self.matrix), -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out

    def astype(self, dtype):
        return Dense(self.matrix.astype(dtype))


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "name",
    ["bicgstab-single", *(pytest.param(e, marks=pytest.mark.slow) for e in WILSON if e != "bicgstab-single")],
)
def test_with_compiled_kernels(name, wilson, random_block, backend):
    solver = WILSON[name](tolerance=1e-11)
    A, plain = wilson(HEAVY, backend), wilson(HEAVY)
    b = random_block(31, *A.shape, 3)
    with kernels_of("cpu"):
        own = replace(A, M=replace(A.M, dslash=replace(A.M.dslash)))
        solution = solver.solve(own, to_device_like(b, A.M.links.links))
    assert array_module(solution.x) is array_module(A.M.links.links)
    check(plain, b, replace(solution, x=as_numpy(solution.x)), 1e-11)
    expected = solver.solve(plain, b)
    assert abs(solution.iterations - expected.iterations) <= 0.1 * expected.iterations + 1
    np.testing.assert_allclose(as_numpy(solution.x), expected.x, atol=1e-9)


@pytest.mark.parametrize("solver", WILSON.values(), ids=WILSON)
def test_iteration_limit(solver, wilson, random_block):
    A = wilson(LIGHT)
    with pytest.raises(NotConverged, match=r"3 of 3 .*tolerance 1e-10 .*after 4 iterations.*max_iter") as e:
        solver(tolerance=1e-10, max_iterations=4).solve(A, random_block(11, *A.shape, 3))
    assert e.value.solution.status is SolveStatus.ITERATION_LIMIT and e.value.solution.iterations == 4


def test_divergence_is_noticed(random_block):
    """Eigenvalues all around zero: every other step makes the residual longer."""
    A = Dense(random_block(21, 120, 120) / np.sqrt(120))
    b = random_block(22, *A.shape, 2)
    with pytest.raises(NotConverged, match=r"grew without limit.*critical kappa.*NormalEquations") as e:
        BiCGstab(1e-10).solve(A, b)
    assert e.value.solution.status is SolveStatus.DIVERGED and (e.value.solution.residual <= 1e6).all()
    x = NormalEquations(BatchedCG(1e-10)).solve(A, b).x
    assert (norms(b - A.apply(x)) <= 1e-10 * norms(b)).all()


@pytest.mark.parametrize("method", [GCR, BiCGstab])
def test_breakdown_is_noticed(method):
    """A rotation by a right angle in each plane: A r is orthogonal to r."""
    A = Dense(np.kron(np.eye(6), np.array([[0.0, 1.0], [-1.0, 0.0]])).astype(complex))
    b = np.zeros((*A.shape, 2), complex)
    b[0, 0] = b[3, 1] = 1
    solution = method(1e-8).solve(A, b, on_failure="return")
    assert solution.status is SolveStatus.BREAKDOWN and solution.iterations <= 4
    assert "another solver" in solution.status.value and not solution.x.any()


def test_products_of_normal_equations_are_two_an_iteration(random_block):
    A = Dense(np.eye(60) + 0.7 * random_block(9, 60, 60) / np.sqrt(60))
    solution = NormalEquations(BatchedCG(1e-10)).solve(A, random_block(10, *A.shape, 1))
    products = solution.matvecs - 2 * solution.iterations
    assert 0 <= products <= solution.extras["replacements"] + 1 < solution.iterations


def test_defect_correction_asks_for_nothing_where_a_column_is_done(random_block, monkeypatch):
    """Its residual is rounding, which a correction would only work on."""
    A, solve, asked = Dense(np.eye(60) + 0.3 * random_block(9, 60, 60) / np.sqrt(60)), GCR.solve, []
    x0 = random_block(10, *A.shape, 2)
    b = A.apply(x0)
    x0[..., 0] = 0

    def noting(self, A, r, **options):
        asked.append(norms(r))
        return solve(self, A, r, **options)

    monkeypatch.setattr(GCR, "solve", noting)
    solution = DefectCorrection(GCR(1e-4), 1e-10).solve(A, b + 1e-14 * norms(b), x0=x0)
    check(A, b + 1e-14 * norms(b), solution, 1e-10)
    assert len(asked) > 1 and all(each[0] > 0 for each in asked) and not np.array(asked)[:, 1].any()


def test_lost_shadow_residuals_are_renewed():
    """s^H r vanishes after one step in the first three dimensions, exactly; b1^2 = b (A^2 b) sees to it."""
    matrix = np.diag(np.arange(1.0, 31)).astype(complex)
    matrix[:3, :3] = [[1, 1, 1], [1, 2, 0], [-1, 0, 3]]
    A, b = Dense(matrix), np.zeros((10, 3, 2), complex)
    b[0, 0, 0], b[:, 1, 1] = 1, 1
    solution = BiCGstab(1e-12).solve(A, np.ascontiguousarray(b[..., :1]))
    check(A, b[..., :1], solution, 1e-12)
    assert solution.iterations <= 4
    check(A, b, BiCGstab(1e-12).solve(A, b), 1e-12)


def test_delta_sets_how_often_residuals_are_replaced(wilson, random_block):
    A = wilson(LIGHT)
    b = random_block(45, *A.shape, 1)
    for method in (BiCGstab, lambda **o: NormalEquations(BatchedCG(**o))):
        often, seldom = (
            method(tolerance=1e-10, precision="double-single", delta=delta).solve(A, b)
            for delta in (0.1, 0.001)
        )
        assert often.extras["replacements"] > seldom.extras["replacements"] >= 3


@pytest.mark.parametrize(
    ("method", "mass"), [(BiCGstab, -1.45), (normal(BatchedCG), LIGHT)], ids=["bicgstab", "cgnr"]
)
def test_reliable_updates_keep_what_defect_correction_forgets(method, mass, wilson, random_block):
    A = wilson(mass)
    b = random_block(46, *A.shape, 1)
    double, reliable = (
        method(tolerance=1e-11, precision=precision, delta=0.1).solve(A, b)
        for precision in ("double", "double-single")
    )
    loose = method(tolerance=0.1)
    corrected = DefectCorrection(loose, 1e-11).solve(A, b)
    assert reliable.extras["replacements"] >= 8 and corrected.extras["replacements"] >= 10
    assert reliable.iterations <= 1.1 * double.iterations + 1 < corrected.iterations


class Nearly:
    """An approximate inverse in single precision that also changes with each application."""

    dtype = np.dtype(np.complex64)

    def __init__(self, inverse):
        self.inverse, self.sizes, self.calls = inverse, [], 0

    def apply(self, x):
        assert x.dtype == self.dtype
        self.sizes.append(norms(x))
        self.calls += 1
        weights = 1 + 0.2 * np.cos(self.calls * np.arange(len(self.inverse)))
        return (
            (self.inverse @ (weights[:, None] * x.reshape(len(self.inverse), -1)))
            .reshape(x.shape)
            .astype(np.complex64)
        )


def test_flexible_preconditioner(random_block):
    """Its blocks have norms near one, whatever the residuals have; zeros stay zero."""
    size = 120
    matrix = np.diag(np.linspace(0.01, 3, size)) + 0.3 * random_block(7, size, size) / size
    A, K = Dense(matrix), Nearly(np.linalg.inv(matrix))
    b = random_block(8, *A.shape, 4) * np.array([1e-30, 1, 0, 1e20])
    solution = GCR(1e-12, preconditioner=K).solve(A, b)
    check(A, b, solution, 1e-12)
    assert solution.iterations < 25 and not solution.x[..., 2].any()
    seen = np.concatenate(K.sizes)
    assert ((seen[seen > 0] > 0.4) & (seen[seen > 0] < 2.1)).all()


def test_fields_of_gcr_with_multigrid():
    """Fewer directions than without, and a cycle's graph: less in all, but more for as many directions."""
    K = Nearly(np.eye(6))
    solver = Solve(MULTIGRID, 1e-8).of_regular(K)
    assert solver.restart == CYCLE_RESTART < GCR().restart and solver.preconditioner is K
    cycle, alone = (workspace_of(name, REGULAR) for name in (MULTIGRID, "gcr"))
    assert alone.mixed - (GCR().restart - CYCLE_RESTART) < cycle.mixed < alone.mixed
    assert cycle.on_device("double-half") == pytest.approx(cycle.mixed - 7 * (1 - 2 * 52 / 192))
    any_of_them = workspace_of("auto", REGULAR)
    for precision in ("double", "double-single", "double-half"):
        assert any_of_them.on_device(precision) == max(s.on_device(precision) for s in (cycle, alone))


def test_restarts_take_the_true_residual_again(wilson, random_block):
    A = wilson(LIGHT)
    b = random_block(44, *A.shape, 2)
    few, many = (GCR(1e-10, restart=k).solve(A, b) for k in (4, 40))
    assert few.extras["replacements"] >= few.iterations / 4 > many.extras["replacements"]
    assert many.iterations <= few.iterations


def test_correction_is_minimal(random_block):
    """After k steps |r - A y| is the least in the Krylov space, by least squares; stopped columns stay."""
    size, steps = 60, 5
    matrix = np.eye(size) + 0.7 * random_block(9, size, size) / np.sqrt(size)
    A, r = Dense(matrix), random_block(10, size // 3, 3, 2)
    kept = r.copy()
    y = gcr_correction(A, r, steps)
    assert np.array_equal(r, kept)
    for n in range(2):
        column = r[..., n].ravel()
        krylov = np.stack([np.linalg.matrix_power(matrix, k) @ column for k in range(steps)], axis=1)
        best = np.linalg.lstsq(matrix @ krylov, column, rcond=None)[0]
        np.testing.assert_allclose(y[..., n].ravel(), krylov @ best, atol=1e-10)
    r[..., 1] += 5 * np.linalg.eig(matrix)[1][:, 0].reshape(size // 3, 3)  # stops after fewer steps
    loose = gcr_correction(A, r, 30, tolerance=0.2)
    reached = norms(r - A.apply(loose)) / norms(r)
    assert (reached <= 0.2).all() and (reached > 0.02).all()
    alone = [gcr_correction(A, r[..., n : n + 1].copy(), 30, tolerance=0.2) for n in range(2)]
    np.testing.assert_allclose(loose, np.concatenate(alone, axis=-1), atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GCR(restart=0), "restart must be a whole number of at least 1, got 0"),
        (lambda: GCR(tolerance=0.0), "tolerance must lie between 0 and 1"),
        (lambda: BiCGstab(delta=1.5), "delta must lie between 0 and 1, got 1.5"),
        (lambda: DefectCorrection(BiCGstab(0.1), 1.0), "tolerance must lie between 0 and 1, got 1.0"),
        (
            lambda: DefectCorrection(BiCGstab(0.1), max_iterations=0),
            "max_iterations must be a whole number of at least 1",
        ),
    ],
)
def test_configuration_is_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()

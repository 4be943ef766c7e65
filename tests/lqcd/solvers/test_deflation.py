"""Deflation against dense eigenvectors of a small lattice, and solves that use it."""

from dataclasses import replace

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.stored_vectors import polished
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels.dispatch import as_numpy, kernels_of, to_device_like
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.solution import SolveStatus
from stages.lqcd.solvers.space import Space
from support.matrices import matrix_of, relative_residuals
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")

TINY = Lattice((4, 4, 2, 4))
K = 16
MASS = 0.01
SOLVERS = {
    f"{method.__name__}-{precision.removeprefix('double-')}": method(1e-10, precision=precision)
    for method in (BatchedCG, BlockCGrQ)
    for precision in ("double", "double-single")
}


@pytest.fixture(scope="module")
def pairs(dslash):
    """Dense eigenvalues and eigenvectors ``[site, 3, k]`` of B on each parity."""
    return [dense_pairs(SquaredDslash(dslash, parity)) for parity in (EVEN, ODD)]


@pytest.fixture(scope="module")
def deflation(dslash, pairs):
    """deflation(rounding='double', k=K): by the k lowest even vectors, rounded."""

    def make(rounding="double", k=K):
        vectors = ROUNDINGS[rounding](pairs[EVEN][1])
        even = Space.measured(SquaredDslash(dslash), np.ascontiguousarray(vectors[..., :k]))
        return StaggeredSpace(dslash, even)

    return make


@pytest.fixture(scope="module")
def plain_iterations(dslash):
    """Of batched CG in double precision without deflation."""
    rng = np.random.default_rng(17)
    b = rng.normal(size=(TINY.half_volume, 3, 1)).astype(complex)
    return SOLVERS["BatchedCG-double"].solve(NormalOperator(dslash, MASS), b).iterations


def links_of(thin, boundary="antiperiodic", naik_epsilon=0.0):
    with kernels_of("cpu"):
        return hisq_links(thin, TINY, boundary=boundary, naik_epsilon=naik_epsilon)


def dense_pairs(B):
    matrix = matrix_of(B.apply, B.shape)
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors.reshape(*B.shape, -1)


def to_half(vectors):
    """16-bit fixed point with a scale for each site and vector."""
    scale = np.maximum(abs(vectors.real), abs(vectors.imag)).max(axis=1, keepdims=True) / 32767
    return (np.round(vectors / scale) * scale).astype(np.complex64)


ROUNDINGS = {
    "double": lambda vectors: vectors,
    "single": lambda vectors: vectors.astype(np.complex64),
    "half": to_half,
}


def rows(field):
    return field.reshape(-1, field.shape[-1])


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_guess_solves_in_the_deflated_space(deflation, dslash, pairs, random_block, parity):
    A = NormalOperator(dslash, MASS, parity)
    coefficients = random_block(3, K, 5)
    b = pairs[parity][1][..., :K] @ coefficients
    x = deflation().on(parity).guess(A.shift, b)
    expected = pairs[parity][1][..., :K] @ (coefficients / (pairs[parity][0][:K, None] + A.shift))
    assert abs(x - expected).max() < 1e-8 * abs(expected).max()
    assert relative_residuals(A, x, b).max() < 1e-7


@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_guess_leaves_nothing_within_the_vectors(deflation, dslash, random_block, parity, rounding):
    """Galerkin's condition, for the vectors as they were rounded; their odd partners know it in part."""
    A, space = NormalOperator(dslash, MASS, parity), deflation(rounding).on(parity)
    b = random_block(5, *A.shape, 7)
    left = space.within(b - A.apply(space.guess(A.shift, b)))
    allowed = 1e-10 if parity == EVEN else {"double": 1e-9, "single": 1e-5, "half": 0.2}[rounding]
    assert np.linalg.norm(left) < allowed * np.linalg.norm(space.within(b))


@pytest.mark.parametrize("rhs", [1, 3, 16, 33])
def test_block_of_guesses_is_single_guesses(deflation, random_block, rhs):
    for parity in (EVEN, ODD):
        space, b = deflation().on(parity), random_block(7, TINY.half_volume, 3, rhs)
        alone = [space.guess(0.1, np.ascontiguousarray(b[..., n : n + 1])) for n in range(rhs)]
        np.testing.assert_allclose(space.guess(0.1, b), np.concatenate(alone, axis=-1), atol=1e-12)


def test_derived_odd_space_is_that_of_the_dense_odd_eigenvectors(deflation, pairs):
    W = rows(pairs[ODD][1][..., :K])
    identity = np.eye(len(W), dtype=complex).reshape(TINY.half_volume, 3, -1)
    projector = rows(deflation().on(ODD).within(identity))
    assert abs(projector - W @ W.conj().T).max() < 1e-9
    np.testing.assert_allclose(deflation().on(ODD).eigenvalues, pairs[ODD][0][:K], rtol=1e-7)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_remainder_is_an_orthogonal_projector(deflation, random_block, parity, rounding):
    space, x, y = deflation(rounding).on(parity), *random_block(11, 2, TINY.half_volume, 3, 4)
    once = space.remainder(x)
    assert abs(space.remainder(once) - once).max() < 1e-12
    np.testing.assert_allclose(rows(once).conj().T @ rows(y), rows(x).conj().T @ rows(space.remainder(y)))
    assert np.linalg.matrix_rank(rows(space.within(random_block(12, *x.shape[:2], 40))), tol=1e-8) == K


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_all_eigenpairs_solve_at_once(deflation, dslash, random_block, name, parity):
    A = NormalOperator(dslash, MASS, parity)
    b = random_block(13, *A.shape, 16)
    solver = replace(SOLVERS[name], tolerance=1e-8)
    solution = DeflatedSolver(solver, deflation(k=3 * TINY.half_volume)).solve(A, b)
    assert solution.iterations == 0 and solution.extras["deflations"] == 1
    assert relative_residuals(A, solution.x, b).max() < 1e-8


@pytest.mark.parametrize(
    ("name", "rounding", "rhs"),
    [
        pytest.param(name, rounding, rhs, marks=() if quick and rhs == 4 else pytest.mark.slow)
        for number, name in enumerate(SOLVERS)
        for rounding in ROUNDINGS
        for quick in ((number + list(ROUNDINGS).index(rounding)) % 2 == 0,)
        for rhs in (4, 12)
    ],
)
def test_every_true_residual_reaches_the_tolerance(
    deflation, dslash, random_block, plain_iterations, name, rounding, rhs
):
    solver = SOLVERS[name]
    for parity in (EVEN, ODD):
        A = NormalOperator(dslash, MASS, parity)
        b = random_block(17, *A.shape, rhs)
        b[..., 3] = 0
        solution = DeflatedSolver(solver, deflation(rounding)).solve(A, b)
        assert solution.status is SolveStatus.CONVERGED and (solution.residual <= 1e-10).all()
        assert relative_residuals(A, solution.x, b).max() < 1.01e-10
        assert not solution.x[..., 3].any()
        if isinstance(solver, BatchedCG) and (rounding, parity) != ("half", ODD):
            assert solution.iterations < 0.6 * plain_iterations


@pytest.mark.parametrize(
    ("parity", "rounding"), [(ODD, "double"), *((EVEN, rounding) for rounding in ROUNDINGS)]
)
def test_corrections_in_double_lie_within_rounded_vectors(deflation, dslash, random_block, rounding, parity):
    A, space = NormalOperator(dslash, MASS, parity), deflation(rounding)
    correction, _ = space.correction(A)(random_block(67, *A.shape, 4))
    outside = space.on(parity).remainder(correction)
    assert correction.dtype == np.complex128
    assert np.linalg.norm(outside) < 1e-11 * np.linalg.norm(correction)


@pytest.mark.parametrize("rounding", ["single", "half"])
def test_a_low_pass_takes_rounding_out_of_odd_partners(deflation, dslash, random_block, rounding):
    """Residuals of the partners fall, and what 16 bits lose of low modes stays."""
    A, rounded = NormalOperator(dslash, MASS, ODD), deflation(rounding)
    b = random_block(67, *A.shape, 4)
    before = rounded.on(ODD).ritz_residuals(SquaredDslash(dslash, ODD))
    exact, _ = deflation("double").correction(A)(b)
    plain, correction = rounded.on(ODD).guess(A.shift, b), rounded.correction(A)
    assert (correction.residuals < 0.4 * before).all()
    if rounding == "single":
        assert np.linalg.norm(correction(b)[0] - exact) < 0.5 * np.linalg.norm(plain - exact)


def test_vectors_rounded_to_single_need_deflation_on_the_way(deflation, dslash, random_block):
    """An initial guess alone leaves what rounding mixed in: the low modes are found after all."""
    A = NormalOperator(dslash, MASS)
    b, space, solver = random_block(19, *A.shape, 4), deflation("single"), BatchedCG(1e-10)
    guessed = solver.solve(A, b, x0=space.on(EVEN).guess(A.shift, b))
    deflated = DeflatedSolver(solver, space).solve(A, b)
    assert deflated.iterations < 0.5 * guessed.iterations
    assert deflated.extras["deflations"] > 3


def test_polished_half_vectors_deflate_both_parities(deflation, dslash, random_block, plain_iterations):
    B = SquaredDslash(dslash)
    rough = deflation("half")
    rough = replace(rough, even=replace(rough.even, vectors=rough.even.vectors.copy()))
    smooth = replace(rough, even=polished(rough.even, B))
    assert smooth.even.vectors is rough.even.vectors
    smooth.check()
    assert smooth.even.residuals.max() < 0.2 * rough.even.residuals.max()
    for parity in (EVEN, ODD):
        A = NormalOperator(dslash, MASS, parity)
        solver = DeflatedSolver(BatchedCG(1e-10), smooth)
        assert solver.solve(A, random_block(61, *A.shape, 4)).iterations < 0.5 * plain_iterations


def test_iterations_fall_with_the_condition_that_remains(dense, basis, random_block):
    """|e_n| <= 2 q^n |e_0| in the norm of A with q = (sqrt(kappa) - 1) / (sqrt(kappa) + 1)."""
    values = np.geomspace(1e-4, 4, 240)
    A, vectors = dense(23, values), basis(23, 240).reshape(80, 3, 240)
    b = random_block(29, *A.shape, 3)
    iterations = []
    for k in (40, 80, 140):
        space = Space.measured(A, np.ascontiguousarray(vectors[..., :k]))
        solution = DeflatedSolver(BatchedCG(1e-9), space).solve(A, b)
        assert relative_residuals(A, solution.x, b).max() < 1.01e-9
        root = np.sqrt(values[-1] / values[k])
        assert solution.iterations < np.log(2 * root / 1e-9) / np.log((root + 1) / (root - 1))
        iterations.append(solution.iterations)
    plain = BatchedCG(1e-9).solve(A, b).iterations
    assert plain > 1.8 * iterations[0] and sorted(iterations, reverse=True) == iterations


def test_eigenpairs_deflate_as_they_are(dense, random_block):
    """The operator is applied neither for the space nor for its corrections, which serve as well."""
    A = dense(23, np.geomspace(1e-4, 4, 240))
    pairs, b = BlockLanczos(24, 4, tolerance=1e-11).solve(A), random_block(29, *A.shape, 3)
    count, space = len(A.widths), pairs.space
    correction = space.correction(A)
    assert len(A.widths) == count and correction.residuals is pairs.residuals
    measured = Space.measured(A, pairs.vectors)
    np.testing.assert_allclose(space.eigenvalues, measured.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(space.guess(0.1, b), measured.guess(0.1, b), atol=1e-9)
    solutions = [DeflatedSolver(BatchedCG(1e-9), each).solve(A, b) for each in (space, measured)]
    few, many = sorted(solution.iterations for solution in solutions)
    assert many <= 1.03 * few
    assert relative_residuals(A, solutions[0].x, b).max() < 1.01e-9


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_eigenpairs_deflate_both_parities(dslash, random_block, parity, plain_iterations):
    pairs = BlockLanczos(K, 4).solve(SquaredDslash(dslash))
    A = NormalOperator(dslash, MASS, parity)
    solver = DeflatedSolver(BatchedCG(1e-10), StaggeredSpace(dslash, pairs.space))
    assert solver.solve(A, random_block(61, *A.shape, 4)).iterations < 0.6 * plain_iterations


def test_first_guess_is_deflated_too(deflation, dslash, random_block):
    A, solver = NormalOperator(dslash, MASS), DeflatedSolver(BatchedCG(1e-9), deflation())
    b = random_block(31, *A.shape, 4)
    cold = solver.solve(A, b)
    warm = solver.solve(A, b, x0=cold.x * (1 + 1e-3))
    assert relative_residuals(A, warm.x, b).max() < 1e-9 and 0 < warm.iterations < cold.iterations
    again = solver.solve(A, b, x0=warm.x)
    assert again.iterations == again.extras["deflations"] == 0 and np.array_equal(again.x, warm.x)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_space_of_another_operator_is_refused(deflation, thin_links, random_block, rounding):
    space = deflation(rounding)
    space.check()
    rebuilt = StaggeredDslash(links_of(thin_links))
    b = random_block(41, TINY.half_volume, 3, 1)
    DeflatedSolver(BatchedCG(1e-6), space).solve(NormalOperator(rebuilt, MASS), b)
    others = {
        "boundary": links_of(thin_links, boundary="periodic"),
        "naik_epsilon": links_of(thin_links, naik_epsilon=-0.02),
        "gauge field": links_of(thin_links.conj()),
    }
    for links in others.values():
        other = StaggeredDslash(links)
        message = (
            r"not of this operator: vector \d+ has a residual of .*gauge field, boundary condition and naik"
        )
        refuses(message, replace(space, dslash=other).check)
        with pytest.raises(InputError, match="not of this operator"):
            DeflatedSolver(BatchedCG(1e-6), space).solve(NormalOperator(other, MASS), b)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_change_of_naik_epsilon_is_seen_above_the_recorded_residuals(deflation, thin_links, rounding):
    passes, seen = {"double": (1e-12, 1e-9), "single": (1e-6, 1e-5), "half": (1e-3, 1e-2)}[rounding]
    near, far = (
        replace(deflation(rounding), dslash=StaggeredDslash(links))
        for links in (links_of(thin_links, naik_epsilon=change) for change in (passes, seen))
    )
    near.check()
    refuses("not of this operator", far.check)


def test_refusals(deflation, dslash, pairs, dense, random_block):
    even = deflation().even
    refuses("no recorded residuals", replace(even, residuals=None).check, SquaredDslash(dslash))
    refuses(r"16 vectors, \(3, 3\) and \(16, 16\)", Space.of, even.vectors, np.eye(3), even.projected)
    with pytest.raises(InputError, match="16 vectors have as many residuals"):
        Space.of(even.vectors, even.gram, even.projected, np.zeros(4))
    with pytest.raises(InputError, match=r"lowest eigenvalue .* and the shift -1 add up to"):
        even.guess(-1.0, random_block(43, TINY.half_volume, 3, 1))
    twice = np.concatenate([pairs[EVEN][1][..., :4]] * 2, axis=-1)
    with pytest.raises(InputError, match="8 vectors of the deflation space are linearly dependent"):
        Space.measured(SquaredDslash(dslash), twice).guess(0.1, random_block(43, TINY.half_volume, 3, 1))
    with pytest.raises(InputError, match=r"has fields \(64, 3\), the operator \(100, 3\)"):
        A = dense(47, np.ones(300))
        DeflatedSolver(BatchedCG(), even).solve(A, random_block(53, *A.shape, 1))


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "name", [list(SOLVERS)[1], *(pytest.param(n, marks=pytest.mark.slow) for n in SOLVERS)]
)
def test_with_compiled_kernels(deflation, staggered, random_block, name, backend):
    """Solves there have the solutions of the reference kernels, for both parities."""
    reference_space = deflation("single")
    dslash = replace(staggered("hisq", MASS, backend).dslash, _precisions={})
    vectors = to_device_like(reference_space.even.vectors, dslash.links.fat)
    space = StaggeredSpace(dslash, replace(reference_space.even, vectors=vectors))
    space.check()
    solver = SOLVERS[name]
    for parity in (EVEN, ODD):
        A, b = NormalOperator(reference_space.dslash, MASS, parity), random_block(59, TINY.half_volume, 3, 3)
        expected = DeflatedSolver(solver, reference_space).solve(A, b)
        A = NormalOperator(dslash, MASS, parity)
        with kernels_of("cpu"):
            found = DeflatedSolver(solver, space).solve(A, to_device_like(b, vectors))
        assert (found.residual <= 1e-10).all()
        assert abs(found.iterations - expected.iterations) <= 0.3 * expected.iterations
        np.testing.assert_allclose(as_numpy(found.x), expected.x, atol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_right_hand_side_that_is_not_finite_costs_no_other(deflation, dslash, random_block, name):
    A = NormalOperator(dslash, MASS)
    b = random_block(43, *A.shape, 4)
    expected = DeflatedSolver(SOLVERS[name], deflation()).solve(A, b).x
    b[3, 1, 1] = np.inf
    solution = DeflatedSolver(SOLVERS[name], deflation()).solve(A, b, on_failure="return")
    assert solution.status is SolveStatus.NOT_FINITE
    assert np.flatnonzero(~(solution.residual <= 1e-10)).tolist() == [1]
    others = [0, 2, 3]
    assert abs(solution.x - expected)[..., others].max() < 1e-7 * abs(expected).max()

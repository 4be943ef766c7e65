"""s-step conjugate gradients: parts against exact arithmetic, whole solves against conjugate gradients."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels import powers
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.sstep.deviation import Deviation
from stages.lqcd.solvers.sstep.polynomials import BASES, leja_order, polynomials
from stages.lqcd.solvers.sstep.spectrum import ritz_values
from stages.lqcd.solvers.sstep.sstep_cg import SStepCG
from workflows.benchmarks.sstep_study import laplacian, strakos, study

RITZ = np.linspace(0.3, 7.0, 17)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(
    ("precision", "limit"), [("working", 1.0), ("double", 1.0), ("double-double", 1e-19)]
)
def test_gram_matrices_against_fractions(dtype, precision, limit):
    rng = np.random.default_rng(3)
    basis = (rng.normal(size=(4, 40, 3, 2)) + 1j * rng.normal(size=(4, 40, 3, 2))).astype(dtype)
    basis *= np.exp2(rng.integers(-20, 20, size=basis.shape)).astype(dtype)
    if precision == "working":
        limit = 8 * np.finfo(dtype).eps
    elif precision == "double":
        limit = 8 * np.finfo(float).eps
    gram = powers.gram(basis, precision)
    reals = (
        basis.view(basis.real.dtype)
        .reshape(4, -1, 2, 2)
        .transpose(2, 0, 1, 3)
        .reshape(2, 4, -1)
        .astype(float)
    )
    for n in range(2):
        for j in range(4):
            for k in range(4):
                pairs = zip(reals[n, j].tolist(), reals[n, k].tolist(), strict=True)
                exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
                found = Fraction(float(gram.high[n, j, k])) + Fraction(float(gram.low[n, j, k]))
                scale = np.linalg.norm(reals[n, j]) * np.linalg.norm(reals[n, k])
                assert abs(float(found - exact)) <= limit * scale


@pytest.fixture
def random_complex():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def test_gram_of_many_rows_and_magnitudes(random_complex):
    basis = random_complex(3, 20_000, 2)
    gram = powers.gram(basis, "double-double")
    exact = np.einsum("jxn,kxn->njk", basis.conj(), basis).real
    assert np.allclose(gram.high, exact, rtol=1e-12, atol=1e-9) and not np.allclose(gram.low, 0, atol=0)
    parts = basis.view(float).reshape(3, -1, 2, 2)
    assert np.allclose(powers.magnitudes(basis), np.einsum("jxnc,kxnc->njk", abs(parts), abs(parts)))


@pytest.mark.parametrize("basis", BASES)
def test_polynomials_obey_their_matrix(basis):
    values = np.linspace(0.3, 7.0, 12)
    of = polynomials(basis, 6, RITZ)
    rho = np.ones((7, 12))
    for i in range(6):
        rho[i + 1] = ((values - of.theta[i]) * rho[i] - of.sigma[i] * rho[i - 1] * (i > 0)) / of.gamma[i]
    change = of.change(6)
    assert np.allclose(values * rho[:6], change.T[:6] @ rho, rtol=1e-12)
    assert not change[:, 6].any()


def test_leja_order_and_ritz_values():
    assert leja_order(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 3).tolist() == [4.0, 0.0, 2.0]
    assert sorted(leja_order(np.array([1.0, 2.0]), 4)) == [1.0, 1.0, 2.0, 2.0]
    model = strakos(50, 0.1, 0.9)
    ritz = ritz_values(model, np.ones((50, 1), complex), 40)
    assert 0.0999 < ritz[0] < 0.15 and abs(ritz[-1] - 1) < 1e-6


def test_coordinates_are_conjugate_gradients(random_complex):
    """x, r and p of 5 steps are those of plain conjugate gradients; a column that is done stays as it is."""
    steps, n = 5, 3
    model, b = strakos(60, 0.05, 0.9), random_complex(60, n)
    of = polynomials("chebyshev", steps, np.array([0.05, 1.0]))
    basis = np.zeros((2 * steps + 1, 60, n), complex)
    for first, count in ((0, steps + 1), (steps + 1, steps)):
        basis[first] = b
        for i in range(count - 1):
            v = model.apply(basis[first + i]) - of.theta[i] * basis[first + i]
            basis[first + i + 1] = (v - of.sigma[i] * basis[first + i - 1] * (i > 0)) / of.gamma[i]
    change = np.zeros((2 * steps + 1, 2 * steps + 1))
    change[: steps + 1, : steps + 1], change[steps + 1 :, steps + 1 :] = (
        of.change(steps),
        of.change(steps - 1),
    )
    targets2 = np.array([0, 1e9, 0])
    gram = powers.gram(basis, "double-double")
    path = powers.conjugate_gradients(gram, change, steps, steps + 1, targets2, False)
    x, r, p = np.zeros_like(b), b.copy(), b.copy()
    for _ in range(steps):
        ap, before = model.apply(p), (abs(r) ** 2).sum(axis=0)
        alpha = before / (p.conj() * ap).sum(axis=0).real
        x, r = x + alpha * p, r - alpha * ap
        p = r + (abs(r) ** 2).sum(axis=0) / before * p
    for plain, coordinates in ((x, path.x), (r, path.r), (p, path.p)):
        found = np.einsum("kxn,nk->xn", basis, coordinates[-1])
        for column in (0, 2):
            assert np.abs(found - plain)[:, column].max() < 1e-11 * np.abs(plain[:, column]).max()
    assert not path.x[-1, 1].any() and (path.norms2[:, 1] == path.norms2[0, 1]).all()


def test_deviation_asks_for_replacement_when_it_has_grown():
    deviation = Deviation(1e-8, 1.0, np.ones(1), np.ones(1))
    magnitudes, change = np.ones((1, 1, 1)), np.zeros((1, 1))
    x = np.array([0, 1, 1e5, 1e5]).reshape(4, 1, 1)
    wanted = deviation.block(magnitudes, change, x, 0 * x, np.ones((4, 1)))
    assert wanted[:, 0].tolist() == [False, False, True, True]
    before = deviation.bound.copy()
    deviation.advance(1)
    assert deviation.bound > before


@pytest.mark.parametrize(
    ("s", "basis"), [(1, "monomial"), (8, "monomial"), (16, "newton"), (16, "chebyshev")]
)
@pytest.mark.parametrize("inner", [None, "single"])
def test_as_many_iterations_as_conjugate_gradients(dslash, random_complex, s, basis, inner):
    """A block of mixed scales, with a zero column; every residual is a true one.

    In mixed precision monomials and Newton's polynomials of such degrees cost up to 30 % more.
    """
    A = NormalOperator(dslash, 0.05)
    b = random_complex(*A.shape, 4) * np.array([1, 1e-30, 0, 1e20])
    plain = BatchedCG(1e-10, inner=inner).solve(A, b)
    solution = SStepCG(1e-10, inner=inner, s=s, basis=basis).solve(A, b)
    more = 1.3 if inner and s > 1 and basis != "chebyshev" else 1.1
    assert solution.iterations <= more * plain.iterations + 1
    norms = np.linalg.norm(b.reshape(-1, 4), axis=0)
    missed = np.linalg.norm((b - A.apply(solution.x)).reshape(-1, 4), axis=0)
    assert (missed <= 1.001e-10 * norms).all() and not solution.x[..., 2].any()
    assert max(solution.extras["steps"]) <= s


def test_guard_shortens_blocks_and_says_so(dslash, random_complex):
    A = NormalOperator(dslash, 0.05)
    b = random_complex(*A.shape, 1)
    guarded = SStepCG(1e-6, inner="single", s=16, basis="monomial").solve(A, b)
    assert 1 <= min(guarded.extras["steps"]) < 16
    free = SStepCG(1e-6, inner="single", s=16, guard=False, basis="monomial").solve(A, b, on_failure="return")
    assert set(free.extras["steps"]) == {16}


def test_ingredients_on_the_laplacian():
    """Uniform precision degrades, the Gram matrix restores the rate, replaced residuals the accuracy."""
    model = laplacian(12)
    b = np.random.default_rng(5).standard_normal((*model.shape, 1)).astype(np.complex64)
    plain = study(model, b, 1, "monomial", True, True, 400)
    reached = plain.to(1e-5)
    assert reached is not None and min(plain.true) < 3e-7
    poor = study(model, b, 8, "monomial", False, False, 400)
    assert poor.to(1e-5) is None
    for s, basis in ((8, "monomial"), (16, "newton"), (16, "chebyshev")):
        run = study(model, b, s, basis, True, True, 400)
        assert run.to(1e-5) <= 1.1 * reached + 1 and min(run.true) < 3e-7 and run.replaced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s": 0}, "s must be 1 to 16"),
        ({"s": 17}, "s must be 1 to 16"),
        ({"basis": "legendre"}, "basis must be one of monomial, newton, chebyshev"),
        ({"gram": "quad"}, "gram must be one of"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(InputError, match=message):
        SStepCG(1e-8, **options)
    with pytest.raises(InputError, match="precision must be"):
        powers.gram(np.zeros((2, 3, 1), complex), "quad")

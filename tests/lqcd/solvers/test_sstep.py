"""s-step conjugate gradients: parts against exact arithmetic, whole solves against conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels import block_blas, stream
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.solvers import sstep_basis
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.leja import leja_order
from stages.lqcd.solvers.solution import SolveStatus
from stages.lqcd.solvers.sstep_basis import BASES, known_ritz_values, polynomials, ritz_values
from stages.lqcd.solvers.sstep_cg import Deviation, SStepCG

RITZ = np.linspace(0.3, 7.0, 17)


@dataclass(eq=False)
class Diagonal:
    """A diagonal matrix on fields ``[n, N]``."""

    values: NDArray[Any]
    dtype: Any = complex
    hermitian = positive_definite = True
    xp = np

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def astype(self, dtype: Any) -> Diagonal:
        return Diagonal(self.values, dtype)

    def apply(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        return np.multiply(x, self.values.astype(x.real.dtype)[:, None], out=out)


def laplacian(side: int) -> Diagonal:
    """The 7-point Laplacian with Dirichlet boundaries on side^3 points, in its eigenvectors."""
    one = 4 * np.sin(np.pi / 2 * np.arange(1, side + 1) / (side + 1)) ** 2
    return Diagonal((one[:, None, None] + one[:, None] + one).reshape(-1))


def strakos(size: int, low: float, rho: float) -> Diagonal:
    """lambda_i = low + (i - 1) / (n - 1) (1 - low) rho^(n - i) (Z. Strakos, LAA 154 (1991) 535)."""
    i = np.arange(1, size + 1)
    return Diagonal(low + (i - 1) / (size - 1) * (1 - low) * rho ** (size - i))


@pytest.fixture
def random_complex():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.mark.parametrize("basis", BASES)
def test_polynomials_obey_their_matrix(basis):
    values = np.linspace(0.3, 7.0, 12)
    of = polynomials(basis, 6, RITZ)
    rho = np.ones((7, 12))
    for i in range(6):
        rho[i + 1] = ((values - of.theta[i]) * rho[i] - of.sigma[i] * rho[i - 1] * (i > 0)) / of.gamma[i]
    change = of.change(6)
    for first, degree in ((0, 6), (7, 5)):
        own = slice(first, first + degree + 1)
        assert np.allclose(values * rho[:degree], change[own, own].T[:-1] @ rho[: degree + 1], rtol=1e-12)
        assert not change[:, first + degree].any() and not np.delete(change[:, own], np.r_[own], axis=0).any()


def test_leja_order_and_ritz_values():
    assert leja_order(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 3).tolist() == [4.0, 0.0, 2.0]
    assert sorted(leja_order(np.array([1.0, 2.0]), 4)) == [1.0, 1.0, 2.0, 2.0]
    model = strakos(50, 0.1, 0.9)
    ritz = ritz_values(model, np.ones((50, 1), complex), 40)
    assert 0.0999 < ritz[0] < 0.15 and abs(ritz[-1] - 1) < 1e-6


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
    ("s", "basis", "precision"),
    [
        pytest.param(1, "monomial", "double", marks=pytest.mark.slow),
        (1, "monomial", "double-single"),
        (8, "monomial", "double"),
        (8, "monomial", "double-single"),
        (16, "newton", "double"),
        (16, "newton", "double-single"),
        (16, "chebyshev", "double"),
        pytest.param(16, "chebyshev", "double-single", marks=pytest.mark.slow),
    ],
)
def test_as_many_iterations_as_conjugate_gradients(larger, random_complex, s, basis, precision):
    """A block of mixed scales, with a zero column; every residual is a true one.

    In mixed precision polynomials of degree 16 may cost up to 30 % more, as rounding on a processor has it.
    """
    A = larger("hisq", 0.05)
    b = random_complex(*A.shape, 3) * np.array([1e-30, 0, 1e20])
    plain = BatchedCG(1e-10, precision=precision).solve(A, b)
    solution = SStepCG(1e-10, precision=precision, s=s, basis=basis).solve(A, b)
    more = 1.3 if precision != "double" and s == 16 else 1.1
    assert solution.iterations <= more * plain.iterations + 1
    norms = np.linalg.norm(b.reshape(-1, 3), axis=0)
    missed = np.linalg.norm((b - A.apply(solution.x)).reshape(-1, 3), axis=0)
    assert (missed <= 1.001e-10 * norms).all() and not solution.x[..., 1].any()
    assert max(solution.extras["steps"]) <= s


def test_guard_shortens_blocks_and_says_so(dslash, random_complex):
    A = NormalOperator(dslash, 0.05)
    b = random_complex(*A.shape, 1)
    guarded = SStepCG(1e-6, precision="double-single", s=16, basis="monomial").solve(A, b)
    assert 1 <= min(guarded.extras["steps"]) < 16


def test_single_precision_reaches_what_conjugate_gradients_do():
    """Residuals that are replaced in time keep rate and accuracy of solves in single precision only."""
    A = laplacian(12).astype(np.complex64)
    b = np.random.default_rng(5).standard_normal((*A.shape, 1)).astype(np.complex64)
    plain = BatchedCG(1e-5).solve(A, b).iterations
    for s, basis in ((8, "monomial"), (16, "newton"), (16, "chebyshev")):
        assert SStepCG(1e-5, s=s, basis=basis).solve(A, b).iterations <= 1.1 * plain + 1
        accurate = SStepCG(2.9e-7, s=s, basis=basis).solve(A, b)
        assert accurate.extras["replacements"] > 1
        missed = b - A.astype(complex).apply(accurate.x.astype(complex))
        assert np.linalg.norm(missed) < 3e-7 * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s": 0}, "s must be a whole number of at least 1, got 0"),
        ({"s": 17}, "s must be 1 to 16"),
        ({"basis": "legendre"}, "basis must be one of monomial, newton, chebyshev"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(InputError, match=message):
        SStepCG(1e-8, **options)


@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("s", "precision"), [(4, "double-single"), (8, "double")])
def test_whole_blocks_ahead_of_the_host(staggered, random_complex, monkeypatch, place, s, precision):
    """As a device is given them: the same solutions, and the host is told at the end of the blocks."""
    A = staggered("hisq", 0.05, place)
    b = A.xp.asarray(random_complex(*A.shape, 3) * np.array([1, 1e-8, 0]))
    solver = SStepCG(1e-10, precision=precision, s=s, replace=False)
    expected = solver.solve(A, b)
    if place == "cpu":
        monkeypatch.setattr(stream, "lag", lambda xp: 1)
    solution = solver.solve(A, b)
    assert solution.iterations <= 1.1 * expected.iterations + 2 * s
    assert (solution.residual <= 1e-10).all() and not solution.x[..., 2].any()
    missed = as_numpy(block_blas.norms(b - A.apply(solution.x)))
    assert (missed <= 1.001e-10 * as_numpy(block_blas.norms(b))).all()
    limited = replace(solver, max_iterations=11).solve(A, b, on_failure="return")
    assert limited.status is SolveStatus.ITERATION_LIMIT and limited.iterations == 11


def test_ritz_values_are_found_once_for_an_operator(monkeypatch):
    calls = []
    found = sstep_basis.ritz_values
    monkeypatch.setattr(sstep_basis, "ritz_values", lambda *given: calls.append(given) or found(*given))
    model, dtype = strakos(50, 0.1, 0.9), np.dtype(complex)
    first = known_ritz_values(model, dtype)
    assert known_ritz_values(model, dtype) is first and len(calls) == 1
    del model
    assert known_ritz_values(strakos(50, 0.2, 0.9), dtype)[0] > 0.19 and len(calls) == 2

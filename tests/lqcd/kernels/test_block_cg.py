"""The pieces of a block CGrQ iteration against plain products; unusual iterations change nothing."""

import numba
import numpy as np
import pytest
from widths import in_single, widths

from stages.lqcd.kernels.block_cg import BlockCoefficients, block_step, iteration_grams, step_coefficients
from stages.lqcd.kernels.dispatch import as_numpy

WIDTHS = widths((3, 8), (1, 12, 16, 24, 32, 33, 64))
TARGET = 1.0


@pytest.fixture
def hermitian():
    """hermitian(n, low, high): a random matrix with eigenvalues in this range."""
    rng = np.random.default_rng(60607)

    def draw(n, low, high):
        basis = np.linalg.qr(rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n)))[0]
        return (basis * rng.uniform(low, high, size=n)) @ basis.conj().T

    return draw


@pytest.fixture
def ordinary(hermitian):
    """ordinary(n): Gram matrices of an ordinary iteration; the residual falls to between 0.3 and 0.8."""

    def draw(n):
        pap, q2 = hermitian(n, 1, 4), np.eye(n) + hermitian(n, -1e-5, 1e-5)
        alpha = np.linalg.solve(pap, q2)
        back = np.linalg.inv(alpha)
        return np.stack([pap, back.conj().T @ (q2 + hermitian(n, 0.1, 0.6)) @ back, q2])

    return draw


def test_workspace_has_the_shape_asked_for():
    a = BlockCoefficients.of(np.zeros((3, 5)), np.zeros(5), np.zeros(1))
    small, large = a.workspace("partial sums", (2, 3)), a.workspace("partial sums", (4, 3))
    assert small.shape == (2, 3) and large.shape == (4, 3)
    assert a.workspace("partial sums", (2, 3)) is small and a.workspace("others", (2, 3)) is not small


@pytest.mark.parametrize("rows", [1, 47, 2048, 6151])
@pytest.mark.parametrize("n", WIDTHS)
def test_sums(backend, random, tolerance, n, rows):
    p, ap, q = random(rows, n), random(rows, n), random(rows, n)
    a = BlockCoefficients.of(np.zeros((n, n)), np.zeros(n), backend.array(p))
    backend.kernels.block_cg.iteration_grams(*(backend.array(block) for block in (p, ap, q)), a)
    sums = backend.host(a.grams)
    p, ap, q = (block.astype(complex) for block in (p, ap, q))
    pap = p.conj().T @ ap
    left, right = np.tril(sums[0]), np.triu(sums[0])
    scale = np.sqrt(np.linalg.norm(p) * np.linalg.norm(ap)) ** 2
    for half, cut in ((left, np.tril), (right, np.triu)):
        either = np.minimum(abs(half - cut(pap)), abs(half - cut(pap.conj().T)))
        mean = abs(half - cut(pap + pap.conj().T) / 2)
        assert np.minimum(either, mean).max() <= tolerance * scale
    assert np.array_equal(left, right.conj().T)
    for found, expected in zip(sums[1:], (ap.conj().T @ ap, q.conj().T @ q), strict=True):
        assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def coefficients(backend, grams, c, rank):
    target = np.full(c.shape[1], TARGET)
    a = BlockCoefficients.of(c, target, backend.array(np.zeros(1)))
    a.grams[...] = backend.array(grams)
    backend.kernels.block_cg.step_coefficients(a, rank, 1e-7)
    return a


@pytest.mark.parametrize("rhs", [0, 5])
@pytest.mark.parametrize("n", WIDTHS)
def test_small_algebra(backend, ordinary, n, rhs):
    grams, c = ordinary(n), np.random.default_rng(3).normal(size=(n, n + rhs)).astype(complex)
    if n + rhs > 64:
        pytest.skip("wider than a block can be")
    found = coefficients(backend, grams, c, n)
    pap, ap2, q2 = grams
    alpha = np.linalg.solve(pap, q2)
    S = np.linalg.cholesky(alpha.conj().T @ ap2 @ alpha - q2).conj().T
    T = np.linalg.inv(S)
    expected = {"x": alpha @ c, "q": T, "ap": -alpha @ T, "p": np.linalg.solve(q2, S.conj().T), "c": S @ c}
    for name, matrix in expected.items():
        values = as_numpy(getattr(found, name))
        assert np.linalg.norm(values - matrix) <= 1e-8 * np.linalg.norm(matrix), name
    summary = as_numpy(found.summary)
    assert summary[0] == 1
    large = (abs(S @ c) > TARGET).any(axis=1)
    np.testing.assert_allclose(summary[1], S.diagonal().real[large].min(initial=1), rtol=1e-9)
    np.testing.assert_allclose(summary[2:], np.linalg.norm(S @ c, axis=0), rtol=1e-12)


@pytest.mark.parametrize("n", [3, 16, 33])
def test_columns_of_zeros_stay(backend, ordinary, n):
    whole, c = ordinary(n), np.zeros((n, n), complex)
    rank = n - 2
    grams = np.zeros_like(whole)
    grams[:, :rank, :rank] = ordinary(rank)
    c[:rank] = 1.5
    found = coefficients(backend, grams, c, rank)
    small = coefficients(backend, grams[:, :rank, :rank], c[:rank], rank)
    for name in ("x", "q", "ap", "p", "c"):
        values, expected = as_numpy(getattr(found, name)), as_numpy(getattr(small, name))
        np.testing.assert_allclose(values[:rank, : expected.shape[1]], expected, atol=1e-12)
        assert not values[:rank, rank:].any() or name in ("x", "c")
    assert not as_numpy(found.c)[rank:].any() and as_numpy(found.summary)[0] == 1


UNUSUAL = ["drifted", "dependent", "indefinite", "infinite", "stalled"]


def unusual(grams):
    """Gram matrices that the recurrence must not be continued with."""
    drifted, dependent, indefinite, infinite, stalled = (grams.copy() for _ in range(len(UNUSUAL)))
    drifted[2, 1, 1] += 0.02
    dependent[0, 1] = dependent[0, 0]
    dependent[0, :, 1] = dependent[0, :, 0]
    indefinite[0] *= -1
    infinite[1, 0, 1] = np.nan
    stalled[1] = grams[0] @ np.linalg.solve(grams[2], grams[0]) * (1 + 1e-9)
    return drifted, dependent, indefinite, infinite, stalled


@pytest.mark.parametrize("case", range(len(UNUSUAL)), ids=UNUSUAL)
@pytest.mark.parametrize("n", widths((3, 8), (16, 64)))
def test_unusual_iterations_change_nothing(backend, random, ordinary, n, case):
    grams, c = unusual(ordinary(n))[case], 0.5 * np.eye(n)
    with np.errstate(invalid="ignore"):
        a = coefficients(backend, grams, c, n)
    before = [random(50, 3, n) for _ in range(4)]
    blocks = [backend.array(block) for block in before]
    backend.kernels.block_cg.block_step(*blocks, a)
    assert backend.host(a.summary)[0] == 0 and np.array_equal(backend.host(a.c), c)
    for block, unchanged in zip(blocks, before, strict=True):
        assert np.array_equal(backend.host(block), unchanged)


def test_threads_share_a_small_lattice_and_change_no_bit(ordinary):
    rng, n, rows = np.random.default_rng(7741), 3, 3 * 8**4 // 2
    blocks = rng.normal(size=(4, rows, n)) + 1j * rng.normal(size=(4, rows, n))
    everyone, results = numba.get_num_threads(), []
    for threads in (1, everyone):
        numba.set_num_threads(threads)
        x, q, p, ap = (block.copy() for block in blocks)
        a = BlockCoefficients.of(np.ones((n, n)), np.zeros(n), p)
        iteration_grams(p, ap, q, a)
        sums = a.grams.copy()
        a.grams[...] = ordinary(n) if not results else results[0][1]
        used = a.grams.copy()
        step_coefficients(a, n, 1e-16)
        block_step(x, q, p, ap, a)
        results.append((sums, used, x, q, p))
    numba.set_num_threads(everyone)
    assert all(np.array_equal(*pair) for pair in zip(*results, strict=True))
    assert not np.array_equal(results[0][2], blocks[0])
    assert [len(buffer) for buffer in a._buffers.values()] == [24]


@pytest.mark.parametrize("rows", [1, 63, 2048, 6151])
@pytest.mark.parametrize("n", WIDTHS)
def test_sweep(backend, random, ordinary, tolerance, n, rows):
    sweep(backend, random, ordinary, tolerance, n, n, rows)


@in_single
@pytest.mark.parametrize(("n", "rhs"), widths([(3, 7)], [(8, 16), (16, 33)]))
def test_sweep_of_a_narrowed_block(backend, random, ordinary, tolerance, n, rhs):
    sweep(backend, random, ordinary, tolerance, n, rhs, 700)


@pytest.mark.parametrize(
    ("n", "rhs"), widths([(3, 3)], [(3, 7), (16, 18), *((n, n) for n in (16, 24, 40, 48, 64))])
)
@pytest.mark.parametrize("rows", widths((700,), (6151,)))
def test_sweep_with_a_solution_in_double(backend, random, ordinary, tolerance, n, rhs, rows):
    sweep(backend, random, ordinary, tolerance, n, rhs, rows, np.complex128)


def sweep(backend, random, ordinary, tolerance, n, rhs, rows, of_x=None):
    x, q, p, ap, c = random(rows, rhs), *(random(rows, n) for _ in range(3)), random(n, rhs).astype(complex)
    x = x.astype(of_x or x.dtype)
    found = coefficients(backend, ordinary(n), c, n)
    blocks = [backend.array(block) for block in (x, q, p, ap)]
    backend.kernels.block_cg.block_step(*blocks, found)
    a = {name: as_numpy(getattr(found, name)) for name in ("x", "q", "ap", "p")}
    wide = [block.astype(complex) for block in (x, q, p, ap)]
    new_q = wide[1] @ a["q"] + wide[3] @ a["ap"]
    expected = (wide[0] + wide[2] @ a["x"], new_q, new_q + wide[2] @ a["p"], wide[3])
    for block, values in zip(blocks, expected, strict=True):
        near = 1e-14 if block.dtype == np.complex128 else 2 * tolerance
        assert np.linalg.norm(backend.host(block) - values) <= near * np.linalg.norm(values)

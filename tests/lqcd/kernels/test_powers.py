"""Paired powers: Gram matrices against fractions, coordinates and updates against conjugate gradients."""

from fractions import Fraction

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels import powers
from stages.lqcd.solvers.sstep_basis import polynomials

EIGENVALUES = np.linspace(0.05, 1.0, 60)


def vectors(paired, n):
    """The vectors of a right-hand side as reals ``[K, ...]`` in double."""
    rhs, steps = paired.shape[-1] // 2, len(paired) - 1
    both = [paired[..., n], paired[:steps, ..., rhs + n]]
    reals = np.concatenate([each.reshape(len(each), -1) for each in both])
    return reals.view(reals.real.dtype).astype(float)


def coordinates_of(backend, on_device, change=None, targets2=None, restarted=None):
    """Coordinates in paired powers, with zeros for what is not given."""
    n, size = on_device.shape[-1] // 2, 2 * len(on_device) - 1
    change = np.zeros((size, size)) if change is None else change
    given = (backend.array(np.zeros(n) if each is None else each) for each in (targets2, restarted))
    return powers.Coordinates.empty(on_device, change, *given)


def grams(backend, paired):
    on_device = backend.array(paired)
    coordinates = coordinates_of(backend, on_device)
    powers.gram(on_device, coordinates)
    return backend.host(coordinates.high), backend.host(coordinates.low)


def test_gram_matrices_against_fractions(backend, random, dtype):
    """Numbers of 12 decades, in products that cancel."""
    paired = random(3, 40, 3, 4)
    paired *= np.exp2(np.random.default_rng(3).integers(-20, 20, size=paired.shape)).astype(dtype)
    doubled = 1e-28 if backend.xp is not np else 1e-18
    limit = doubled if dtype == np.complex128 else 8 * np.finfo(float).eps
    high, low = grams(backend, paired)
    for n in range(2):
        reals = vectors(paired, n)
        lengths = np.linalg.norm(reals, axis=1)
        for j in range(5):
            for k in range(5):
                pairs = zip(reals[j].tolist(), reals[k].tolist(), strict=True)
                exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
                found = Fraction(float(high[n, j, k])) + Fraction(float(low[n, j, k]))
                assert abs(float(found - exact)) <= limit * lengths[j] * lengths[k]


@pytest.mark.parametrize(("n", "steps"), widths([(3, 4), (1, 8)], [(1, 1), (8, 16), (12, 3), (33, 2)]))
@pytest.mark.parametrize("rows", [1, 4099])
def test_products_of_all_pairs(backend, random, dtype, n, steps, rows):
    paired = random(steps + 1, rows, 2 * n)
    exact = np.stack([reals @ reals.T for reals in (vectors(paired, k) for k in range(n))])
    absolute = np.stack([abs(reals) @ abs(reals).T for reals in (vectors(paired, k) for k in range(n))])
    high, low = grams(backend, paired)
    assert (abs(high + low - exact) <= 300 * np.finfo(float).eps * absolute).all()
    assert (high == high.swapaxes(1, 2)).all() and (low == low.swapaxes(1, 2)).all()
    assert not low.any() or dtype == np.complex128
    found = backend.host(powers.magnitudes(backend.array(paired)))
    np.testing.assert_allclose(found, absolute, rtol=300 * np.finfo(dtype).eps)


def test_the_third_term_of_a_recurrence(backend, random, dtype):
    paired = random(4, 50, 6)
    on_device = backend.array(paired)
    powers.add_earlier(on_device, 2, -0.5)
    paired[3] -= dtype.type(0.5) * paired[1]
    np.testing.assert_allclose(backend.host(on_device), paired, rtol=4 * np.finfo(dtype).eps)


def conjugate_gradients(r, p, steps, targets2, restarted):
    """x, r, p and the last direction of plain conjugate gradients in double, a right-hand side at a time."""
    x, last = np.zeros_like(r), np.zeros_like(r)
    rho = (abs(r) ** 2).sum(axis=0)
    for step in range(steps):
        for n in np.flatnonzero(rho > targets2):
            ap = EIGENVALUES * p[:, n]
            curvature, exactly = (p[:, n].conj() @ ap).real, restarted[n] and step == 0
            alpha = ((p[:, n].conj() @ r[:, n]).real if exactly else rho[n]) / curvature
            x[:, n] += alpha * p[:, n]
            r[:, n] -= alpha * ap
            after = np.linalg.norm(r[:, n]) ** 2
            beta = -(ap.conj() @ r[:, n]).real / curvature if exactly else after / rho[n]
            last[:, n] = p[:, n]
            p[:, n] = r[:, n] + beta * p[:, n]
            rho[n] = after
    return x, r, p, last


def paired_powers(r, p, of, steps):
    fields = [np.concatenate([p, r], axis=1)]
    for i in range(steps):
        v = EIGENVALUES[:, None] * fields[i] - of.theta[i] * fields[i]
        fields.append((v - (of.sigma[i] * fields[i - 1] if i else 0)) / of.gamma[i])
    return np.stack(fields)


@pytest.mark.parametrize(("steps", "step"), [(1, 1), (16, 16), (16, 5)])
def test_coordinates_and_update_are_conjugate_gradients(backend, random, dtype, steps, step):
    """One of four right-hand sides is done, one follows a replacement of its residual."""
    n, targets2 = 4, np.array([0, 1e9, 0, 0])
    r, p = (random(len(EIGENVALUES), n).astype(complex) for _ in range(2))
    restarted = np.array([1.0, 1.0, 0.0, 1.0])
    p[:, 2] = r[:, 2]
    of = polynomials("chebyshev", steps, EIGENVALUES)
    fields = paired_powers(r, p, of, steps).astype(dtype)
    r, p = (each.astype(dtype).astype(complex) for each in (r, p))
    on_device = backend.array(fields)
    coordinates = coordinates_of(backend, on_device, of.change(steps), targets2, restarted)
    powers.gram(on_device, coordinates)
    powers.conjugate_gradients(coordinates, 0.0)
    report = powers.Report.of(backend.host(coordinates.report))
    assert report.taken.tolist() == [steps, 0, steps, steps] and (report.allowed == steps).all()
    before = random(len(EIGENVALUES), n)
    y, last, image = (backend.array(before) for _ in range(3))
    powers.update(y, on_device, last, image, coordinates, step)
    assert backend.host(coordinates.restarted).tolist() == [0, 1, 0, 0]
    exact = conjugate_gradients(r.copy(), p.copy(), step, targets2, restarted)
    found = [backend.host(each) for each in (y, on_device[0][:, n:], on_device[0][:, :n], last)]
    found[0] = found[0] - before
    limit = 1e-9 if dtype == np.complex128 else 2e-4
    for plain, field in zip(exact, found, strict=True):
        for column in (0, 2, 3):
            assert abs(field - plain)[:, column].max() <= limit * abs(plain[:, column]).max()
    applied = EIGENVALUES[:, None] * exact[3]
    assert abs(backend.host(image) - applied)[:, (0, 2, 3)].max() <= limit * abs(applied).max()
    kept = [backend.host(each)[:, 1] for each in (y, last, image, on_device[0][:, :n])]
    for field, expected in zip(kept, [before[:, 1]] * 3 + [fields[0][:, 1]], strict=True):
        assert (field == expected).all()
    np.testing.assert_allclose(
        report.norms2[step, [0, 2, 3]], (abs(exact[1]) ** 2).sum(axis=0)[[0, 2, 3]], rtol=limit
    )


def test_guard_allows_the_steps_before_vectors_depend_on_each_other(backend, random, dtype):
    """The third power of the one depends on those before it; the other is allowed all, the last is zero."""
    paired = random(6, 50, 6)
    paired[3, :, 0] = paired[2, :, 0] + 0.5 * paired[0, :, 0] + 1e-7 * paired[3, :, 0]
    paired[:, :, (2, 5)] = 0
    on_device = backend.array(paired)
    for least, allowed in ((1e-10, [2, 5, 5]), (1e-18, [5, 5, 5])):
        coordinates = coordinates_of(backend, on_device, np.eye(11))
        powers.gram(on_device, coordinates)
        powers.conjugate_gradients(coordinates, least)
        report = powers.Report.of(backend.host(coordinates.report))
        assert report.allowed.tolist() == allowed and (report.taken <= report.allowed).all()
        assert report.taken[2] == 0


def test_an_indefinite_matrix_is_reported_and_ends_the_steps(backend, random, dtype):
    on_device = backend.array(random(3, 50, 2))
    coordinates = coordinates_of(backend, on_device, -np.eye(5))
    powers.gram(on_device, coordinates)
    powers.conjugate_gradients(coordinates, 0.0)
    report = powers.Report.of(backend.host(coordinates.report))
    assert report.taken == 0 and report.curvatures[1] < 0 and report.norms2[2] == report.norms2[0] > 0


def test_misuse(backend):
    for shape in ((1, 5, 2), (18, 5, 2), (3, 5, 3), (3, 2)):
        array = backend.array(np.zeros(shape, complex))
        with pytest.raises(InputError, match="paired powers are an array"):
            powers.magnitudes(array)
    array = backend.array(np.zeros((3, 5, 2), complex))
    with pytest.raises(InputError, match="y must be"):
        powers.update(array[0], array, array[0], array[0], coordinates_of(backend, array), 1)

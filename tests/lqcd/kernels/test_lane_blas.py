"""Sums, updates and least squares over a basis, each right-hand side by itself, against NumPy in double."""

import numba
import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from support.matrices import near
from support.refusals import refuses

SHAPES = widths([(1, 9), (3, 4), (33, 5)], [(1, 1), (2, 3), (8, 2), (16, 10)])
"""Right-hand sides and fields."""


@pytest.mark.parametrize(("n", "count"), SHAPES)
def test_sums_and_updates_are_those_of_each_column(backend, random, tolerance, n, count):
    xs, y, a = random(count, 1536, 2, n), random(1536, 2, n), random(count, n).astype(complex)
    blas, basis, field = backend.kernels.lane_blas, backend.array(xs), backend.array(y)
    sums = blas.lane_dots(basis, field)
    assert sums.dtype == np.complex128 and isinstance(sums, backend.xp.ndarray)
    wide = xs.astype(complex)
    assert near(backend.host(sums), np.einsum("ksrn,srn->kn", wide.conj(), y), 2 * tolerance)
    blas.lane_update(field, basis, backend.array(a))
    assert near(backend.host(field), y + np.einsum("kn,ksrn->srn", a, wide), 2 * tolerance)
    assert np.array_equal(backend.host(basis), xs)
    scaled, scale = backend.array(y), random(n).astype(complex)
    blas.lane_update(scaled, basis, backend.array(a), backend.array(scale))
    assert near(backend.host(scaled), scale * y + np.einsum("kn,ksrn->srn", a, wide), 2 * tolerance)


@pytest.mark.parametrize(("n", "count"), SHAPES)
def test_polynomials_are_the_two_updates(backend, random, tolerance, n, count):
    v, y, c = random(count + 1, 1536, 2, n), random(1536, 2, n), random(count, n).astype(complex)
    basis, field = backend.array(v), backend.array(y)
    backend.kernels.lane_blas.lane_polynomial(field, basis, backend.array(c))
    wide = v.astype(complex)
    assert near(backend.host(field), y + np.einsum("kn,ksrn->srn", c, wide[:-1]), 2 * tolerance)
    assert near(backend.host(basis)[0], wide[0] - np.einsum("kn,ksrn->srn", c, wide[1:]), 2 * tolerance)
    assert np.array_equal(backend.host(basis)[1:], v[1:])
    with pytest.raises(InputError, match="coefficients must be complex of shape"):
        backend.kernels.lane_blas.lane_polynomial(field, basis, backend.array(c[:, :-1]))
    with pytest.raises(InputError, match="the basis must be a C-contiguous"):
        backend.kernels.lane_blas.lane_polynomial(field, basis[::-1], backend.array(c))


@pytest.mark.parametrize("rows", [1, 8, 47, 2048, 2049, 70001])
def test_any_number_of_rows(backend, random, tolerance, rows):
    """From one block of threads to many; repeated, because counters have to be back at zero."""
    xs, y, a = random(3, rows, 3), random(rows, 3), random(3, 3).astype(complex)
    basis, blas = backend.array(xs), backend.kernels.lane_blas
    for _ in range(3):
        field = backend.array(y)
        expected = np.einsum("krn,rn->kn", xs.conj().astype(complex), y)
        assert near(backend.host(blas.lane_dots(basis, field)), expected, 4 * tolerance)
        blas.lane_update(field, basis, backend.array(a))
        assert near(backend.host(field), y + np.einsum("kn,krn->rn", a, xs), 2 * tolerance)


def test_leading_fields_of_a_longer_basis(backend, random, tolerance):
    xs, y, a = random(6, 500, 3), random(500, 3), random(4, 3).astype(complex)
    basis, field = backend.array(xs)[:4], backend.array(y)
    sums = backend.kernels.lane_blas.lane_dots(basis, field)
    assert near(backend.host(sums), np.einsum("krn,rn->kn", xs[:4].conj().astype(complex), y), 2 * tolerance)
    backend.kernels.lane_blas.lane_update(field, basis, backend.array(a))
    assert near(backend.host(field), y + np.einsum("kn,krn->rn", a, xs[:4]), 2 * tolerance)


def test_a_column_with_zero_coefficients_keeps_its_values(backend, random):
    xs, y, a = random(5, 320, 8), random(320, 8), random(5, 8).astype(complex)
    a[:, 3] = 0
    field = backend.array(y)
    backend.kernels.lane_blas.lane_update(field, backend.array(xs), backend.array(a))
    after = backend.host(field)
    assert np.array_equal(after[:, 3], y[:, 3]) and (after[:, 4] != y[:, 4]).all()


def test_bits_do_not_depend_on_threads(random):
    from stages.lqcd.kernels import lane_blas

    xs, y, a = random(3, 30012, 3), random(30012, 3), random(3, 3).astype(complex)
    results, usual = [], numba.get_num_threads()
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(threads)
        updated = y.copy()
        lane_blas.lane_update(updated, xs, a)
        results.append(lane_blas.lane_dots(xs, y).tobytes() + updated.tobytes())
    numba.set_num_threads(usual)
    assert results[0] == results[1]


def test_arrays_that_do_not_fit_are_refused(backend, random):
    xs, y = backend.array(random(3, 20, 4)), backend.array(random(20, 4))
    blas, a = backend.kernels.lane_blas, backend.array(np.ones((3, 4), complex))
    refuses(r"shape \(K, ...\) with K > 0", blas.lane_dots, y, y)
    refuses(r"shape \(K, ...\) with K > 0", blas.lane_dots, xs[:0], y)
    with pytest.raises(InputError, match="the basis must be a C-contiguous"):
        blas.lane_dots(xs[:, :, ::2], backend.xp.ascontiguousarray(y[:, ::2]))
    refuses(r"coefficients must be complex of shape \(3, 4\)", blas.lane_update, y, xs, a[:2])
    refuses(r"scale must have shape \(4,\), got \(3,\)", blas.lane_update, y, xs, a, a[0, :3])
    refuses("coefficients must be complex", blas.lane_update, y, xs, a.real)


def test_a_field_that_depends_on_others_takes_no_part_in_a_fit(backend, random):
    """Least squares of v_0 by v_1 and the same once more: those of v_1."""
    v = random(3, 150, 2, 3)
    v[2] = v[1]
    gram = np.einsum("kxyn,lxyn->kln", v.conj(), v).astype(complex)
    found = backend.host(backend.kernels.lane_blas.lane_least_squares(backend.array(gram)))
    np.testing.assert_allclose(found[0], gram[1, 0] / gram[1, 1], rtol=1e-6)
    assert not found[1].any()


def grams(xs):
    rows = xs.reshape(len(xs), -1, xs.shape[-1]).astype(complex)
    return np.einsum("jrn,krn->jkn", rows.conj(), rows)


@pytest.mark.parametrize(("n", "count"), widths([(3, 5), (33, 3)], [(1, 2), (16, 5), (24, 4), (2, 4)]))
@pytest.mark.parametrize("rows", [1, 4099])
def test_products_of_all_pairs(backend, random, tolerance, n, count, rows):
    xs = random(count, rows, 4, n)
    found = backend.kernels.lane_blas.lane_gram(backend.array(xs))
    assert found.dtype == np.complex128 and isinstance(found, backend.xp.ndarray)
    difference = np.abs(backend.host(found) - grams(xs))
    assert difference.max() <= 8 * tolerance * np.abs(grams(xs)).max()


@pytest.mark.parametrize("count", [2, 3, 5])
def test_residual_of_least_squares_is_the_shortest(backend, random, count):
    xs = random(count, 211, 7).astype(complex)
    c = backend.host(backend.kernels.lane_blas.lane_least_squares(backend.array(grams(xs))))
    for n in range(7):
        expected = np.linalg.lstsq(xs[1:, :, n].T, xs[0, :, n], rcond=None)[0]
        np.testing.assert_allclose(c[:, n], expected, rtol=1e-10, atol=1e-12)


def test_scales_zeros_and_dependent_fields(backend, random):
    """Norms from 1e-30 to 1e30; nothing to fit; a field that vanishes; one that depends on another."""
    xs = random(4, 211, 5).astype(complex)
    xs[1] *= 1e-30
    xs[3] *= 1e30
    xs[0, :, 1] = 0
    xs[2, :, 2] = 0
    xs[3, :, 3] = (2 + 1j) * xs[1, :, 3]
    xs[:, :, 4] = 0
    c = backend.host(backend.kernels.lane_blas.lane_least_squares(backend.array(grams(xs))))
    assert np.isfinite(c).all()
    assert not c[:, 1].any() and not c[:, 4].any() and c[1, 2] == 0 and c[2, 3] == 0
    for n in (0, 2, 3):
        residual = xs[0, :, n] - (c[:, n, None] * xs[1:, :, n]).sum(axis=0)
        scaled = xs[1:, :, n] / np.maximum(np.linalg.norm(xs[1:, :, n], axis=1), 1e-300)[:, None]
        shortest = xs[0, :, n] - scaled.T @ np.linalg.lstsq(scaled.T, xs[0, :, n], rcond=1e-8)[0]
        assert np.linalg.norm(residual) == pytest.approx(np.linalg.norm(shortest), rel=1e-10)


def test_misuse_of_gram_matrices(backend, random):
    kernels = backend.kernels.lane_blas
    for shape in ((1, 5, 2), (6, 5, 2)):
        refuses("2 to 5 fields", kernels.lane_gram, backend.array(random(*shape)))
    refuses("gram must be", kernels.lane_least_squares, backend.array(np.zeros((3, 2, 4), complex)))

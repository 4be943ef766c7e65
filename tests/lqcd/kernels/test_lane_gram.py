"""Gram matrices of a few fields and least squares among them, against plain sums and NumPy's solver."""

import numpy as np
import pytest
from widths import widths

from support.refusals import refuses


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


def test_misuse(backend, random):
    kernels = backend.kernels.lane_blas
    for shape in ((1, 5, 2), (6, 5, 2)):
        refuses("2 to 5 fields", kernels.lane_gram, backend.array(random(*shape)))
    refuses("gram must be", kernels.lane_least_squares, backend.array(np.zeros((3, 2, 4), complex)))

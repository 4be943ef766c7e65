"""The vector updates of conjugate gradients, and that a zero coefficient freezes its right-hand side."""

from __future__ import annotations

import numpy as np
import pytest


def close(values, expected, tolerance):
    return np.abs(values - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("n", [1, 3, 8, 16, 33, 64])
def test_step_and_direction(backend, random, tolerance, n):
    x, r, p, ap = (random(769, 3, n) for _ in range(4))
    alpha, beta = np.random.default_rng(n).normal(size=(2, n))
    fields = [backend.array(values) for values in (x, r, p, ap)]
    norms2 = backend.kernels.cg_update.cg_step(*fields, backend.array(alpha))
    new_r = r.astype(complex) - alpha * ap
    assert close(backend.host(fields[0]), x.astype(complex) + alpha * p, tolerance)
    assert close(backend.host(fields[1]), new_r, tolerance)
    assert norms2.dtype == np.float64
    assert close(backend.host(norms2), (np.abs(new_r) ** 2).sum(axis=(0, 1)), tolerance)
    backend.kernels.cg_update.cg_direction(fields[2], fields[1], backend.array(beta))
    assert close(backend.host(fields[2]), new_r + beta * p, tolerance)


@pytest.mark.parametrize("n", [3, 16])
def test_zero_coefficients_freeze(backend, random, n):
    x, r, p, ap = (random(65, 3, n) for _ in range(4))
    p[:, :, 1], ap[:, :, 1] = np.nan, np.inf
    x[0, 0, 1] = r[0, 0, 1] = complex(-0.0, -0.0)
    alpha = np.linspace(0.5, 1.5, n)
    alpha[1] = 0
    fields = [backend.array(values) for values in (x, r, p, ap)]
    norms2 = backend.host(backend.kernels.cg_update.cg_step(*fields, backend.array(alpha)))
    for field, before in zip(fields, (x, r), strict=False):
        after = backend.host(field)
        assert after[:, :, 1].tobytes() == before[:, :, 1].tobytes()
        assert np.isfinite(after).all()
        assert not np.array_equal(after[:, :, 0], before[:, :, 0])
    assert np.isfinite(norms2).all()
    backend.kernels.cg_update.cg_direction(fields[2], fields[1], backend.array(alpha))
    assert np.array_equal(backend.host(fields[2])[:, :, 1], r[:, :, 1])
    assert np.isfinite(backend.host(fields[2])).all()

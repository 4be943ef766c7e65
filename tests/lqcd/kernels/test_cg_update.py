"""The vector updates of conjugate gradients, and that a converged right-hand side is left as it is."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.cg_update import CGCoefficients
from support.matrices import close


@pytest.fixture
def coefficients(backend):
    """coefficients(field, **numbers): on the backend's device; what is not given lies in 0.5 to 1.5."""

    def make(field, **numbers):
        made = CGCoefficients.zeros(field)
        rng = np.random.default_rng(made.rhs)
        for name in ("r2", "pap", "gamma", "alpha", "beta"):
            values = numbers.get(name, rng.uniform(0.5, 1.5, made.rhs))
            getattr(made, name)[...] = backend.array(np.asarray(values))
        made.target2[...] = backend.array(np.asarray(numbers.get("target2", np.full(made.rhs, 0.1))))
        return made

    return make


@pytest.mark.parametrize("n", widths((3, 33), (1, 8, 16, 64)))
def test_a_step(backend, random, tolerance, coefficients, n):
    x, r, p, ap = (random(768, 3, n) for _ in range(4))
    on_device = [backend.array(values) for values in (x, r, p, ap)]
    c = coefficients(on_device[0])
    before = {name: backend.host(getattr(c, name)).copy() for name in ("r2", "pap", "gamma", "alpha", "beta")}

    backend.kernels.cg_update.cg_advance(on_device[0], on_device[2], on_device[1], c)
    assert close(backend.host(on_device[0]), x.astype(complex) + before["alpha"] * p, tolerance)
    assert close(backend.host(on_device[2]), r.astype(complex) + before["beta"] * p, tolerance)
    assert np.array_equal(backend.host(on_device[1]), r)

    backend.kernels.cg_update.cg_residual(on_device[1], on_device[3], c)
    alpha = before["gamma"] / before["pap"]
    new_r = r.astype(complex) - alpha * ap
    norms2 = (np.abs(new_r) ** 2).sum(axis=(0, 1))
    assert close(backend.host(on_device[1]), new_r, tolerance)
    assert np.array_equal(backend.host(on_device[3]), ap)
    np.testing.assert_allclose(backend.host(c.alpha), alpha, rtol=1e-14)
    assert close(backend.host(c.r2), norms2, tolerance)
    np.testing.assert_allclose(backend.host(c.beta), backend.host(c.r2) / before["r2"], rtol=1e-14)
    assert np.array_equal(backend.host(c.gamma), backend.host(c.r2))
    assert np.array_equal(backend.host(c.pap), before["pap"])


@pytest.mark.parametrize("rows", [1, 47, 2048, 70001])
def test_any_number_of_rows(backend, random, tolerance, coefficients, rows):
    """From one block of threads to many; repeated, because counters have to be back at zero."""
    r, ap = random(rows, 1, 8), random(rows, 1, 8)
    for _ in range(3):
        on_device = backend.array(r)
        c = coefficients(on_device)
        alpha = backend.host(c.gamma) / backend.host(c.pap)
        backend.kernels.cg_update.cg_residual(on_device, backend.array(ap), c)
        expected = (np.abs(r.astype(complex) - alpha * ap) ** 2).sum(axis=(0, 1))
        assert close(backend.host(c.r2), expected, 4 * tolerance)


@pytest.mark.parametrize("n", [3, 16])
def test_converged_columns_keep_their_bits(backend, random, coefficients, n):
    """Column 1 has converged and column 2 has a direction of no positive length; ap may hold anything."""
    x, r, p, ap = (random(64, 3, n) for _ in range(4))
    r2, pap, alpha = np.ones((3, n))
    r2[1], pap[2], alpha[1] = 0.05, -1, 0
    ap[:, :, 1:3] = np.nan
    x[0, 0, 1] = r[0, 0, 1] = complex(-0.0, -0.0)
    on_device = [backend.array(values) for values in (x, r, p, ap)]
    c = coefficients(on_device[0], r2=r2, pap=pap, alpha=alpha)
    backend.kernels.cg_update.cg_advance(on_device[0], on_device[2], on_device[1], c)
    backend.kernels.cg_update.cg_residual(on_device[1], on_device[3], c)
    for field, before, frozen in zip(on_device, (x, r, p), ([1], [1, 2], [1]), strict=False):
        after = backend.host(field)
        assert after[:, :, frozen].tobytes() == before[:, :, frozen].tobytes()
        assert np.isfinite(after).all()
        assert not np.array_equal(after[:, :, 0], before[:, :, 0])
    assert not backend.host(c.alpha)[1:3].any() and not backend.host(c.beta)[1:3].any()
    assert np.isfinite(backend.host(c.numbers)).all()


def test_zero_coefficients_hide_what_a_direction_held(backend, random, coefficients):
    x, r, p = (random(64, 3, 4) for _ in range(3))
    p[:, :, 1] = np.nan
    keep = np.array([1.0, 0.0, 1.0, 1.0])
    on_device = [backend.array(values) for values in (x, p, r)]
    c = coefficients(on_device[0], alpha=keep, beta=keep)
    backend.kernels.cg_update.cg_advance(*on_device, c)
    assert np.array_equal(backend.host(on_device[0])[:, :, 1], x[:, :, 1])
    assert np.array_equal(backend.host(on_device[1])[:, :, 1], r[:, :, 1])


def test_refuses_fields_and_coefficients_that_do_not_match(backend, random, coefficients):
    r, ap = backend.array(random(12, 3, 4)), backend.array(random(12, 3, 4))
    with pytest.raises(InputError, match="those of 4 right-hand sides, got 3"):
        backend.kernels.cg_update.cg_residual(r, ap, coefficients(backend.array(random(1, 3, 3))))
    with pytest.raises(
        InputError, match=r"p must be a C-contiguous .* of shape \(12, 3, 4\), got complex\d+ \(6, 3, 4\)"
    ):
        backend.kernels.cg_update.cg_advance(r, ap[:6], r, coefficients(r))

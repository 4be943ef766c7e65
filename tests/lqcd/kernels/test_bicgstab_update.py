"""Sums of BiCGstab and their coefficients, against the formulae in NumPy."""

from typing import Any

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.bicgstab_update import NUMBERS, REALS, BiCGstabCoefficients

ROWS = 12 * 64
FIELDS = ("p", "r", "v", "t", "s", "y")


def random(seed: int, *shape: int) -> Any:
    real, imag = np.random.default_rng(seed).normal(size=(2, *shape))
    return real + 1j * imag


def columns(rhs: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Complex and real coefficients; the first of several columns has reached its target."""
    numbers = {name: random(number, rhs) for number, name in enumerate(NUMBERS)}
    reals = {name: np.ones(rhs) for name in REALS}
    reals["target2"] = np.where((np.arange(rhs) == 0) & (rhs > 1), 2.0, 0.5)
    reals["shadow2"] = np.full(rhs, 30.0)
    return numbers, reals


def dot(x: Any, y: Any) -> Any:
    return (x.conj() * y).sum(axis=(0, 1))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("rhs", widths((1, 3), (16,)))
def test_sums_give_the_coefficients_of_the_formulae(backend: Any, rhs: int, dtype: Any) -> None:
    xp, kernels = backend.xp, backend.kernels.bicgstab_update
    fields = random(20, len(FIELDS), ROWS // 12, 12, rhs).astype(dtype)
    p, r, v, t, s, y = fields.astype(complex)
    n, reals = columns(rhs)
    c = BiCGstabCoefficients(xp.asarray(np.stack([*n.values()])), xp.asarray(np.stack([*reals.values()])))
    pairs, ends, correction = (
        backend.array(np.ascontiguousarray(fields[part])) for part in (slice(3), slice(3, 5), 5)
    )
    kernels.bicgstab_alpha(ends[1], pairs[2], c)
    kernels.bicgstab_omega(ends, pairs[1], c)
    kernels.bicgstab_residual(correction, pairs[:2], ends[0], c)

    active = reals["r2"] > reals["target2"]
    sv, t2, st, tr = dot(s, v), dot(t, t).real, dot(s, t), dot(t, r)
    alpha, omega = np.where(active, n["rho"] / sv, 0), np.where(active, tr / t2, 0)
    rho = n["rho"] - alpha * sv - omega * st
    beta = np.where(active, rho * alpha / np.where(active, n["rho"] * omega, 1), 0)
    y, r = y + alpha * p + omega * r, r - omega * t
    r2 = dot(r, r).real
    going = r2 > reals["target2"]
    expected = {
        "alpha": alpha,
        "minus_alpha": -alpha,
        "omega": omega,
        "rho": rho,
        "beta": beta,
        "open": going,
        "back": -omega * beta * going,
        "kept": np.where(going, beta, 1),
    }
    close: dict[str, Any] = {"rtol": 2e-4 if dtype == np.complex64 else 1e-11}
    for name, values in expected.items():
        np.testing.assert_allclose(backend.host(c.number(name))[0], values, atol=1e-13, err_msg=name, **close)
    np.testing.assert_allclose(backend.host(c.real("r2")), r2, **close)
    angle2 = np.where(beta != 0, abs(rho) ** 2 / (30 * r2), 0)
    np.testing.assert_allclose(backend.host(c.real("angle2")), angle2, **close)
    close["atol"] = 20 * close["rtol"]
    np.testing.assert_allclose(backend.host(correction), y, **close)
    np.testing.assert_allclose(backend.host(pairs[1]), r, **close)


def test_a_shadow_that_is_orthogonal_gives_no_step(backend: Any) -> None:
    c = BiCGstabCoefficients.zeros(backend.array(random(1, 8, 12, 2)))
    c.real("r2")[:], c.number("rho")[:] = 1, 1
    zero = backend.array(np.zeros((8, 12, 2), complex))
    backend.kernels.bicgstab_update.bicgstab_alpha(zero, backend.array(random(2, 8, 12, 2)), c)
    assert not backend.host(c.number("alpha")).any()


def test_other_numbers_of_right_hand_sides_are_refused(backend: Any) -> None:
    x = backend.array(random(1, 8, 12, 2))
    with pytest.raises(InputError, match="those of 2 right-hand sides, got 3"):
        c = BiCGstabCoefficients.zeros(backend.array(random(1, 8, 12, 3)))
        backend.kernels.bicgstab_update.bicgstab_alpha(x, x, c)

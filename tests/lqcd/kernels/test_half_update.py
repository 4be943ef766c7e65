"""Sums and updates of spinors in 16 bits: those of the complex fields that they hold."""

from __future__ import annotations

import numpy as np
import pytest
from widths import widths

from stages.errors import InputError
from stages.lqcd.kernels.half_field import HalfField, from_half, take, to_half
from stages.lqcd.kernels.half_update import half_dots, half_step, half_update

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

SITES = 1003


def error(values, exact):
    return np.linalg.norm(values - exact) / np.linalg.norm(exact)


def held(field):
    """What 16 bits keep of a host's field."""
    return from_half(to_half(field))


def codes(backend, field: HalfField, column: int):
    return backend.host(field.codes)[:, :, column].copy(), backend.host(field.scales)[:, column].copy()


@pytest.mark.parametrize("n", widths((1, 3), (2, 12, 16, 33, 64)))
def test_dots(backend, random, n):
    fields = [random(SITES, 12, n) for _ in range(3)]
    halves = [to_half(backend.array(field)) for field in fields]
    for count in (1, 2, 3):
        sums = backend.host(half_dots(halves[:count], halves[-1]))
        expected = [
            (held(x).conj() * held(fields[-1]).astype(complex)).sum(axis=(0, 1)) for x in fields[:count]
        ]
        np.testing.assert_allclose(sums, expected, atol=1e-5 * SITES * 24)
    norms = (np.abs(held(fields[2])).astype(float) ** 2).sum(axis=(0, 1))
    np.testing.assert_allclose(sums[2], norms, rtol=1e-5)


@pytest.mark.parametrize("n", widths((1, 3), (2, 12, 16, 33, 64)))
def test_update(backend, random, n):
    """The first column does not move and keeps its codes; the last becomes another field's."""
    y, *xs = (random(SITES, 12, n) for _ in range(3))
    a, scale = random(2, n).astype(complex), random(n).astype(complex)
    a[:, 0], scale[0] = 0, 1
    if n > 1:
        a[:, -1], scale[-1] = (1, 0), 0
    for count, factor in ((2, scale), (1, None)):
        result, halves = to_half(backend.array(y)), [to_half(backend.array(x)) for x in xs[:count]]
        before = codes(backend, result, 0)
        half_update(
            result, halves, backend.array(a[:count]), None if factor is None else backend.array(factor)
        )
        expected = held(y) * (1 if factor is None else factor)
        expected = expected + sum(c * held(x) for c, x in zip(a, xs[:count], strict=False))
        assert error(backend.host(from_half(result)), expected) < 4e-5
        for now, then in zip(codes(backend, result, 0), before, strict=True):
            assert np.array_equal(now, then)


@pytest.mark.parametrize("n", widths((1, 3), (2, 12, 16, 33, 64)))
def test_step(backend, random, n):
    x, p, r, t = (random(SITES, 12, n) for _ in range(4))
    a = random(2, n).astype(complex)
    a[:, 0] = 0
    solution, residual = backend.array(x.copy()), to_half(backend.array(r))
    before = codes(backend, residual, 0)
    norms2 = half_step(
        solution, to_half(backend.array(p)), residual, to_half(backend.array(t)), backend.array(a)
    )
    assert error(backend.host(solution), x + a[0] * held(p) + a[1] * held(r)) < 1e-6
    expected = held(r) - a[1] * held(t)
    if n > 1:
        assert error(backend.host(from_half(residual)), expected) < 4e-5
    np.testing.assert_allclose(backend.host(norms2), (np.abs(expected) ** 2).sum(axis=(0, 1)), rtol=1e-5)
    assert np.array_equal(backend.host(solution)[..., 0], x[..., 0])
    for now, then in zip(codes(backend, residual, 0), before, strict=True):
        assert np.array_equal(now, then)


def test_columns(backend, random):
    field = random(SITES, 12, 5)
    taken = take(to_half(backend.array(field)), np.array([3, 0]))
    assert np.array_equal(backend.host(from_half(taken)), held(field)[..., [3, 0]])


def test_misuse(backend, random):
    x = to_half(backend.array(random(SITES, 12, 2)))
    a = backend.array(np.zeros((1, 2), complex))
    with pytest.raises(InputError, match="half_dots takes 1 to 3 fields beside y, got 4"):
        half_dots([x] * 4, x)
    with pytest.raises(InputError, match=r"coefficients of shape \(2, 2\), got \(1, 2\)"):
        half_update(x, [x, x], a)
    with pytest.raises(InputError, match=r"codes must be .* \(1003, 12, 2, 2\)"):
        half_dots([to_half(backend.array(random(SITES, 12, 1)))], x)
    with pytest.raises(InputError, match="x must be a C-contiguous complex64"):
        half_step(backend.array(random(SITES, 12, 1)), x, x, x, backend.array(np.zeros((2, 2), complex)))

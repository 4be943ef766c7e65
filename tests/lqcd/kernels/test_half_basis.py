"""Sums and updates over a basis of spinors in 16 bits: those of the complex fields that it holds."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.half_update import (
    HalfBasis,
    half_basis_combine,
    half_basis_dots,
    half_basis_update,
)
from stages.lqcd.kernels.short_numbers import from_half, to_half
from support.matrices import error
from support.refusals import refuses

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

SITES = 1004
"""Fields of a basis begin at addresses that vectors may have: half lattices have multiples of eight sites."""

EACH = widths((1, 3), (2, 12, 16, 33, 64))
COUNTS = (1, 2, 5, 9)


@pytest.fixture
def basis(backend, random):
    """K fields of so many right-hand sides in 16 bits, and what they hold, on the host in double."""

    def make(count, n):
        fields = [random(SITES, 12, n) for _ in range(count)]
        made = HalfBasis.like(backend.array(random(SITES, 12, n)), count)
        for k, field in enumerate(fields):
            to_half(backend.array(field), made[k])
        return made, np.array([from_half(to_half(field)) for field in fields]).astype(complex)

    return make


def dots(xs, y):
    return np.einsum("...scn,scn->...n", xs.conj(), y)


@pytest.mark.parametrize("n", EACH)
def test_dots(backend, random, basis, n):
    y = random(SITES, 12, n)
    for count in COUNTS:
        xs, held = basis(count, n)
        sums = backend.host(half_basis_dots(xs, backend.array(y)))
        np.testing.assert_allclose(sums, dots(held, y), atol=1e-6 * np.linalg.norm(y) ** 2 / n)
    last = backend.host(half_basis_dots(xs.fields(2, 5), backend.array(y)))
    assert error(last, sums[2:5]) < 1e-12
    assert half_basis_dots(xs.fields(0, 0), backend.array(y)).shape == (0, n)


@pytest.mark.parametrize("n", EACH)
def test_update(backend, random, basis, n):
    y = random(SITES, 12, n)
    for count in COUNTS:
        xs, held = basis(count, n)
        a, result = random(count, n).astype(complex), backend.array(y.copy())
        norms2 = backend.host(half_basis_update(result, xs, backend.array(a)))
        expected = y + np.einsum("kn,kscn->scn", a, held)
        assert error(backend.host(result), expected) < 1e-6
        np.testing.assert_allclose(norms2, dots(expected, expected).real, rtol=1e-5)


@pytest.mark.parametrize("n", EACH)
def test_combine(backend, random, basis, n):
    """The field that is left of y, in 16 bits; y stays as it is; a basis may be empty."""
    y, r = random(SITES, 12, n), random(SITES, 12, n)
    for count in (0, *COUNTS):
        xs, held = basis(count + 1, n)
        a, before = random(count, n).astype(complex), backend.host(xs.codes)[:count].copy()
        source, residual = backend.array(y), backend.array(r)
        sums = half_basis_combine(source, xs.fields(0, count), backend.array(a), xs[count], residual)
        expected = y + np.einsum("kn,kscn->scn", a, held[:count])
        assert error(backend.host(from_half(xs[count])), expected) < 4e-5
        assert np.array_equal(backend.host(source), y)
        assert np.array_equal(backend.host(xs.codes)[:count], before)
        exact = np.stack([dots(expected, r), dots(expected, expected)])
        np.testing.assert_allclose(backend.host(sums), exact, atol=2e-6 * abs(exact).max())


def test_a_basis_in_16_bits_takes_104_bytes_for_192(backend, random):
    field = backend.array(random(SITES, 12, 4))
    xs = HalfBasis.like(field, 2)
    assert len(xs) == 2 and len(xs.fields(1, 2)) == 1
    assert (xs.codes.nbytes + xs.scales.nbytes) * 192 == 104 * 2 * field.nbytes


def test_misuse(backend, random, basis):
    y, (xs, _) = backend.array(random(SITES, 12, 2)), basis(2, 2)
    a = backend.array(np.zeros((2, 2), complex))
    refuses(r"complex of shape \(2, 2\), got complex128 \(1, 2\)", half_basis_update, y, xs, a[:1])
    refuses("y must be a C-contiguous complex64", half_basis_dots, xs, y.astype(complex))
    refuses(r"y must be a field \(sites, 12, right-hand sides\)", half_basis_dots, xs, y[0])
    with pytest.raises(InputError, match=r"codes must be .* \(2, 1004, 12, 1, 2\)"):
        half_basis_dots(xs, backend.array(random(SITES, 12, 1)))
    refuses("r must be", half_basis_combine, y, xs, a, xs[0], y[1:])
    refuses("out must be a HalfField", half_basis_combine, y, xs, a, y, y)

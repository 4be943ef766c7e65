"""Sums and updates of spinors in 16 bits and over a basis of them: those of the fields that they hold."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels import clover
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.cg_update import CGCoefficients, cg_advance, cg_residual
from stages.lqcd.kernels.half_update import (
    HalfBasis,
    half_alpha,
    half_basis_combine,
    half_basis_dots,
    half_basis_update,
    half_dot,
    half_norms,
    half_omega,
    half_residual,
    half_update,
)
from stages.lqcd.kernels.short_numbers import HalfField, from_half, numbers_like, take, to_half
from support.matrices import error
from support.refusals import refuses

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

SITES = 1003
EACH = widths((3,), (1, 2, 12, 16, 33, 64))
SPAN = 1004
"""Fields of a basis begin at addresses that vectors may have: half lattices have multiples of eight sites."""

BASES = widths((1, 3), (2, 12, 16, 33, 64))
COUNTS = (1, 2, 5, 9)


def held(field):
    """What 16 bits keep of a host's field."""
    return from_half(to_half(field))


def codes(backend, field: HalfField, column: int):
    return backend.host(field.codes)[:, :, column].copy(), backend.host(field.scales)[:, column].copy()


@pytest.fixture
def coefficients(backend, random):
    """Of so many right-hand sides, of which the first has reached its target; and the same on the host."""

    def make(n):
        host = BiCGstabCoefficients(random(9, n).astype(complex), abs(random(4, n)).astype(float))
        host.real("target2")[:] = 0
        host.real("target2")[0], host.number("alpha", 2)[:, 0] = 2 * host.real("r2")[0], 0
        return BiCGstabCoefficients(backend.array(host.numbers), backend.array(host.reals)), host

    return make


def dot(x, y):
    return (held(x).conj() * held(y).astype(complex)).sum(axis=(0, 1))


@pytest.mark.parametrize("n", EACH)
def test_sums(backend, random, coefficients, n):
    """Residuals near the product, so that no coefficient is large."""
    s, v, t = (random(SITES, 12, n) for _ in range(3))
    r = 0.5 * t + 0.1 * s
    shadow, av, at, residual = (to_half(backend.array(field)) for field in (s, v + s, t + s, r))
    np.testing.assert_allclose(backend.host(half_dot(shadow, av)), dot(s, v + s), atol=1e-5 * SITES * 24)
    c, expected = coefficients(n)
    half_alpha(shadow, av, c)
    expected.give_alpha(dot(s, v + s))
    np.testing.assert_allclose(backend.host(c.number("sv")), expected.number("sv"), atol=1e-5 * SITES * 24)
    half_omega(at, shadow, residual, c)
    expected.give_omega(dot(t + s, t + s).real, dot(s, t + s), dot(t + s, r))
    for name in ("alpha", "omega", "minus_alpha"):
        np.testing.assert_allclose(backend.host(c.number(name)), expected.number(name), rtol=1e-4, atol=1e-6)
    for name in ("rho", "beta"):
        np.testing.assert_allclose(backend.host(c.number(name)), expected.number(name), rtol=1e-3)


@pytest.mark.parametrize("n", EACH)
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


@pytest.mark.parametrize("n", EACH)
def test_residual(backend, random, coefficients, n):
    """The first column does not move and keeps its codes."""
    y, p, r, t = (random(SITES, 12, n) for _ in range(4))
    c, host = coefficients(n)
    alpha, omega = host.number("alpha", 2)
    solution, residual = backend.array(y.copy()), to_half(backend.array(r))
    before = codes(backend, residual, 0)
    half_residual(solution, to_half(backend.array(p)), residual, to_half(backend.array(t)), c)
    assert error(backend.host(solution), y + alpha * held(p) + omega * held(r)) < 1e-6
    expected = held(r) - omega * held(t)
    if n > 1:
        assert error(backend.host(from_half(residual)), expected) < 4e-5
    host.give_direction((np.abs(expected) ** 2).sum(axis=(0, 1)))
    np.testing.assert_allclose(backend.host(c.numbers), host.numbers, rtol=1e-12)
    np.testing.assert_allclose(backend.host(c.reals), host.reals, rtol=1e-5)
    assert np.array_equal(backend.host(solution)[..., 0], y[..., 0])
    for now, then in zip(codes(backend, residual, 0), before, strict=True):
        assert np.array_equal(now, then)


@pytest.fixture
def cg_coefficients(backend, random):
    """Of so many right-hand sides, of which the first has reached its target; and the same on the host."""

    def make(n):
        host = CGCoefficients.zeros(np.empty((1, n)))
        host.numbers[:, :n] = 0.5 + abs(random(6, n)).clip(0, 1)
        host.target2[...] = 0.1
        host.target2[0], host.alpha[0] = 2 * host.r2[0], 0
        return CGCoefficients(backend.array(host.numbers), n), host

    return make


@pytest.mark.parametrize("n", EACH)
def test_conjugate_gradients(backend, random, cg_coefficients, n):
    """Both updates; the first column does not move and keeps its codes, whatever A p holds."""
    x, p, r, ap = (random(SITES, 12, n) for _ in range(4))
    c, host = cg_coefficients(n)
    solution, given = backend.array(x.copy()), [to_half(backend.array(field)) for field in (p, r, ap)]
    direction, residual, product = given
    product.scales[:, 0] = np.nan
    before = [codes(backend, field, 0) for field in (direction, residual)]
    cg_advance(solution, direction, residual, c)
    assert error(backend.host(solution), x + host.alpha * held(p)) < 1e-6
    expected = held(r) + host.beta * held(p)
    moved = slice(1, None)
    if n > 1:
        assert error(backend.host(from_half(direction))[..., moved], expected[..., moved]) < 4e-5
    cg_residual(residual, product, c)
    alpha = host.gamma / host.pap
    alpha[0] = 0
    expected = held(r) - alpha * held(ap)
    if n > 1:
        assert error(backend.host(from_half(residual))[..., moved], expected[..., moved]) < 4e-5
    r2 = (np.abs(expected) ** 2).sum(axis=(0, 1))
    np.testing.assert_allclose(backend.host(c.alpha), alpha, rtol=1e-12)
    np.testing.assert_allclose(backend.host(c.r2), r2, rtol=1e-5)
    assert np.array_equal(backend.host(c.gamma), backend.host(c.r2))
    beta = backend.host(c.r2) / host.r2
    beta[0] = 0
    np.testing.assert_allclose(backend.host(c.beta), beta, rtol=1e-12)
    assert np.array_equal(backend.host(solution)[..., 0], x[..., 0])
    for field, then in zip((direction, residual), before, strict=True):
        assert all(np.array_equal(*each) for each in zip(codes(backend, field, 0), then, strict=True))


def test_a_first_direction_is_the_residual(backend, random, cg_coefficients):
    """Where beta is zero p becomes r, coded once more, whatever p held."""
    c, _ = cg_coefficients(3)
    c.alpha[...] = c.beta[...] = 0
    p, r = (to_half(backend.array(random(SITES, 12, 3))) for _ in range(2))
    p.scales[...] = np.nan
    cg_advance(backend.array(random(SITES, 12, 3)), p, r, c)
    assert error(backend.host(from_half(p))[..., 1:], backend.host(from_half(r))[..., 1:]) < 4e-5


@pytest.mark.parametrize("twisted", [False, True])
@pytest.mark.parametrize("n", EACH)
def test_norms(backend, random, n, twisted):
    """With clover matrices also their product."""
    x, blocks = random(SITES, 12, n), random(SITES, 2, 6, 6)
    blocks = blocks + blocks.conj().swapaxes(-1, -2)
    expected = (np.abs(held(x).astype(complex)) ** 2).sum(axis=(0, 1))
    field, found = to_half(backend.array(x)), backend.array(np.zeros(n))
    half_norms(field, found)
    np.testing.assert_allclose(backend.host(found), expected, rtol=1e-6)
    out, again = numbers_like(field), backend.array(np.zeros(n))
    packed = clover.pack(backend.array(blocks))
    half_norms(field, again, clover.adjoint(clover.twisted(packed, 0.7)) if twisted else packed, out)
    if twisted:
        blocks = blocks - 0.7j * np.array([1, -1])[:, None, None] * np.eye(6)
    np.testing.assert_allclose(backend.host(again), expected, rtol=1e-6)
    product = (blocks.astype(complex) @ held(x).reshape(SITES, 2, 6, n)).reshape(x.shape)
    assert error(backend.host(from_half(out)), product) < 4e-5


def test_columns(backend, random):
    field = random(SITES, 12, 5)
    taken = take(to_half(backend.array(field)), np.array([3, 0]))
    assert np.array_equal(backend.host(from_half(taken)), held(field)[..., [3, 0]])


def test_misuse(backend, random):
    x = to_half(backend.array(random(SITES, 12, 2)))
    a = backend.array(np.zeros((1, 2), complex))
    refuses("half_update takes 1 to 2 fields beside y, got 3", half_update, x, [x] * 3, a)
    refuses(r"coefficients of shape \(2, 2\), got \(1, 2\)", half_update, x, [x, x], a)
    refuses(r"codes must be .* \(1003, 12, 2, 2\)", half_dot, to_half(backend.array(random(SITES, 12, 1))), x)
    wrong = backend.array(random(SITES, 12, 1))
    with pytest.raises(InputError, match="y must be a C-contiguous complex64"):
        half_residual(wrong, x, x, x, BiCGstabCoefficients.zeros(wrong))
    refuses("those of 2 right-hand sides, got 1", cg_residual, x, x, CGCoefficients.zeros(wrong))
    with pytest.raises(InputError, match="ap must be a HalfField, got ndarray: convert it with to_half"):
        cg_residual(x, wrong, CGCoefficients.zeros(a))
    with pytest.raises(InputError, match="clover matrices and a field for the product, or neither"):
        half_norms(x, backend.array(np.zeros(2)), None, x)


@pytest.fixture
def basis(backend, random):
    """K fields of so many right-hand sides in 16 bits, and what they hold, on the host in double."""

    def make(count, n):
        fields = [random(SPAN, 12, n) for _ in range(count)]
        made = HalfBasis.like(backend.array(random(SPAN, 12, n)), count)
        for k, field in enumerate(fields):
            to_half(backend.array(field), made[k])
        return made, np.array([from_half(to_half(field)) for field in fields]).astype(complex)

    return make


def dots(xs, y):
    return np.einsum("...scn,scn->...n", xs.conj(), y)


@pytest.mark.parametrize("n", BASES)
def test_dots(backend, random, basis, n):
    y = random(SPAN, 12, n)
    for count in COUNTS:
        xs, held = basis(count, n)
        sums = backend.host(half_basis_dots(xs, backend.array(y)))
        np.testing.assert_allclose(sums, dots(held, y), atol=1e-6 * np.linalg.norm(y) ** 2 / n)
    last = backend.host(half_basis_dots(xs.fields(2, 5), backend.array(y)))
    assert error(last, sums[2:5]) < 1e-12
    assert half_basis_dots(xs.fields(0, 0), backend.array(y)).shape == (0, n)


@pytest.mark.parametrize("n", BASES)
def test_update_by_a_basis(backend, random, basis, n):
    y = random(SPAN, 12, n)
    for count in COUNTS:
        xs, held = basis(count, n)
        a, result = random(count, n).astype(complex), backend.array(y.copy())
        norms2 = backend.host(half_basis_update(result, xs, backend.array(a)))
        expected = y + np.einsum("kn,kscn->scn", a, held)
        assert error(backend.host(result), expected) < 1e-6
        np.testing.assert_allclose(norms2, dots(expected, expected).real, rtol=1e-5)


@pytest.mark.parametrize("n", BASES)
def test_combine(backend, random, basis, n):
    """The field that is left of y, in 16 bits; y stays as it is; a basis may be empty."""
    y, r = random(SPAN, 12, n), random(SPAN, 12, n)
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
    field = backend.array(random(SPAN, 12, 4))
    xs = HalfBasis.like(field, 2)
    assert len(xs) == 2 and len(xs.fields(1, 2)) == 1
    assert (xs.codes.nbytes + xs.scales.nbytes) * 192 == 104 * 2 * field.nbytes


def test_misuse_of_a_basis(backend, random, basis):
    y, (xs, _) = backend.array(random(SPAN, 12, 2)), basis(2, 2)
    a = backend.array(np.zeros((2, 2), complex))
    refuses(r"complex of shape \(2, 2\), got complex128 \(1, 2\)", half_basis_update, y, xs, a[:1])
    refuses("y must be a C-contiguous complex64", half_basis_dots, xs, y.astype(complex))
    refuses(r"y must be a field \(sites, 12, right-hand sides\)", half_basis_dots, xs, y[0])
    with pytest.raises(InputError, match=r"codes must be .* \(2, 1004, 12, 1, 2\)"):
        half_basis_dots(xs, backend.array(random(SPAN, 12, 1)))
    refuses("r must be", half_basis_combine, y, xs, a, xs[0], y[1:])
    refuses("out must be a HalfField", half_basis_combine, y, xs, a, y, y)

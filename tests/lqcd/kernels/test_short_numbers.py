"""Fields of 16 bytes a colour vector: their codes, products of them, updates of batched CG on them."""

import numpy as np
import pytest
from doubled_links import packed_links
from test_dslash_forms import hisq_fields
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.block_blas import dots, norms2
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.reference import cg_update as reference_updates
from stages.lqcd.kernels.reference import hisq_dslash as reference
from stages.lqcd.kernels.short_numbers import ShortField, from_short, numbers_like, put, take, to_short
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import error
from support.refusals import refuses

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

LATTICE = Lattice((4, 4, 4, 6))
UNIT = {16: 2.0**-15, 20: 2.0**-19}
"""Half a code over the largest one, at least: an error relative to the largest part of a vector."""


def held(field, bits):
    """What a short field keeps of a host's field."""
    return from_short(to_short(field, bits))


@pytest.mark.parametrize("n", [1, 6, 8])
@pytest.mark.parametrize("bits", [16, 20])
def test_conversion_and_back(backend, random, bits, n):
    """Vectors of any size keep their error; what has been coded once is coded so again; packages agree."""
    field = random(96, 3, n) * np.float32(10.0) ** np.linspace(-30, 34, 96, dtype=np.float32)[:, None, None]
    field[5] = 0
    field[6, 1:], field[6, 0] = 0, 1  # the largest part is a power of two
    short = to_short(backend.array(field), bits)
    back = backend.host(from_short(short))
    parts = field.view(np.float32).reshape(96, 3, n, 2)
    largest = np.abs(parts).max(axis=(1, 3))
    errors = np.abs(back.view(np.float32).reshape(parts.shape) - parts).max(axis=(1, 3))
    assert (errors <= UNIT[bits] * largest * (1 + 1e-6)).all() and errors.max() > 0
    assert (back[5] == 0).all()
    words = backend.host(short.words)
    assert np.array_equal(words, to_short(field, bits).words)
    assert np.array_equal(words, backend.host(to_short(backend.array(back), bits).words))
    assert short.shape == field.shape and short.nbytes == 16 * 96 * n


def test_what_is_too_small_for_a_scale_stays_small(backend, random):
    """Numbers below 2^-126 codes lose bits and then vanish; none of them is another number."""
    field = random(64, 3, 2) * np.float32(10.0) ** np.linspace(-44, -32, 64, dtype=np.float32)[:, None, None]
    for bits in (16, 20):
        back = backend.host(from_short(to_short(backend.array(field), bits)))
        parts = field.view(np.float32).reshape(64, 3, 2, 2)
        errors = np.abs(back.view(np.float32).reshape(parts.shape) - parts).max(axis=(1, 3))
        assert (errors <= UNIT[bits] * np.abs(parts).max(axis=(1, 3)) + 2.0**-126).all()


@pytest.mark.parametrize("n", widths((3, 33), (1, 2, 8, 12, 16, 64)))
@pytest.mark.parametrize("extents", [(8, 4, 4, 6), (6, 10, 4, 2)], ids=str)
def test_dslash(backend, random, extents, n):
    """Products are those of what the fields hold, to the rounding of links and result."""
    lattice, kernels = Lattice(extents), backend.kernels.hisq_dslash
    fields = hisq_fields(random, lattice)
    x, y = random(lattice.half_volume, 3, n), random(lattice.half_volume, 3, n)
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, ODD, x.dtype, StaggeredForm.SHORT)
    exact = reference.pack_fields(*fields, lattice, ODD, np.dtype(complex))
    product = reference.hisq_dslash(exact, held(x, 16).astype(complex), np.empty(x.shape, complex))
    short, diagonal = (to_short(backend.array(field), 16) for field in (x, y))
    out = kernels.hisq_dslash(packed, short, numbers_like(short), b=-0.5)
    assert error(backend.host(from_short(out)), -0.5 * product) < 3e-5
    sums = backend.array(np.zeros(n))
    out = kernels.hisq_dslash(
        packed, short, numbers_like(short, bits=20), diagonal=diagonal, a=0.3, b=-1.1, dots=sums
    )
    added = held(y, 16).astype(complex)
    expected = 0.3 * added - 1.1 * product
    assert error(backend.host(from_short(out)), expected) < 3e-6
    products = (added.conj() * expected).real
    assert np.abs(backend.host(sums) - products.sum(axis=(0, 1))).max() < 1e-6 * np.abs(products).sum()


def test_misuse(backend, random):
    kernels = backend.kernels.hisq_dslash
    links, x = backend.array(random(192, 16, 3, 3)), backend.array(random(192, 3, 2))
    short, packed = to_short(x, 16), packed_links(kernels, links, LATTICE, EVEN)
    double = packed_links(kernels, links.astype(complex), LATTICE, EVEN)
    refuses("needs complex64 links, got complex128", kernels.hisq_dslash, double, short, numbers_like(short))
    with pytest.raises(InputError, match="x must have codes of 16 bits, got 20"):
        kernels.hisq_dslash(packed, to_short(x, 20), numbers_like(short))
    with pytest.raises(InputError, match="diagonal must be a ShortField, got"):
        kernels.hisq_dslash(packed, short, numbers_like(short), diagonal=x)
    refuses("out must be a ShortField, got", kernels.hisq_dslash, packed, short, x.copy())
    refuses("x must be a ShortField, got", kernels.hisq_dslash, packed, x, numbers_like(short))
    with pytest.raises(InputError, match=r"links packed for it: give pack_fields StaggeredForm\.SHORT"):
        kernels.hisq_dslash(packed, short, numbers_like(short))
    refuses("must not be its input", kernels.hisq_dslash, packed, short, short)
    with pytest.raises(InputError, match=r"out.words must be .* uint32 array of shape \(192, 2, 4\)"):
        kernels.hisq_dslash(packed, short, ShortField(short.words[:-1].copy(), 16))
    refuses("16 or 20 bits, got 8", to_short, x, 8)
    refuses(r"shape \(sites, 3, right-hand sides\), got \(192,", to_short, x[:, 0, 0], 16)


def test_sums_and_columns(backend, random):
    """Sums of a short field are those of what it holds; columns are taken without a change."""
    x, y = random(96, 3, 3), random(96, 3, 3)
    a, b = to_short(backend.array(x), 16), to_short(backend.array(y), 20)
    products = (held(x, 16).conj() * held(y, 20).astype(complex)).sum(axis=(0, 1))
    np.testing.assert_allclose(backend.host(dots(a, b)), products, rtol=1e-5)
    np.testing.assert_allclose(
        backend.host(norms2(a)), (np.abs(held(x, 16)) ** 2).sum(axis=(0, 1)), rtol=1e-5
    )
    taken = take(b, np.array([2, 0]))
    assert np.array_equal(backend.host(from_short(taken)), held(y, 20)[..., [2, 0]])
    put(b, backend.array(x.astype(complex)))
    assert np.array_equal(backend.host(from_short(b)), held(x, 20))


@pytest.mark.parametrize("n", widths((3,), (1, 8, 16, 33, 64)))
@pytest.mark.parametrize("sites", [1, 47, 3001])
def test_an_iteration_of_conjugate_gradients(backend, random, sites, n):
    """As on the complex fields that short ones hold; columns that do not move keep their words."""
    x, p, r, ap = (random(sites, 3, n) for _ in range(4))
    rng = np.random.default_rng(n)
    numbers = rng.uniform(0.5, 1.5, (6, n + n % 2))
    numbers[2] = 0.1
    numbers[2, 0] = 2  # the first has converged
    if n > 2:
        numbers[4, 2] = numbers[5, 2] = 0
    short = (to_short(backend.array(f), bits) for f, bits in ((p, 16), (r, 20), (ap, 20)))
    on_device = [backend.array(x.copy()), *short]
    expected = [x.copy(), held(p, 16), held(r, 20), held(ap, 20)]
    c, exact = CGCoefficients(backend.array(numbers.copy()), n), CGCoefficients(numbers.copy(), n)
    before = [backend.host(field.words).copy() for field in on_device[1:]]

    backend.kernels.cg_update.cg_advance(*on_device[:3], c)
    reference_updates.cg_advance(*expected[:3], exact)
    assert error(backend.host(on_device[0]), expected[0]) < 1e-6
    assert error(backend.host(from_short(on_device[1])), expected[1]) < 3e-5
    assert np.array_equal(backend.host(on_device[1].words)[:, 0], before[0][:, 0])
    assert np.array_equal(backend.host(on_device[2].words), before[1])

    backend.kernels.cg_update.cg_residual(on_device[2], on_device[3], c)
    reference_updates.cg_residual(expected[2], expected[3], exact)
    assert error(backend.host(from_short(on_device[2])), expected[2]) < 3e-6
    assert np.array_equal(backend.host(on_device[2].words)[:, 0], before[1][:, 0])
    assert np.array_equal(backend.host(on_device[3].words), before[2])
    np.testing.assert_allclose(backend.host(c.numbers)[:, :n], exact.numbers[:, :n], rtol=1e-5)


def test_updates_refuse_other_fields(backend, random):
    x = backend.array(random(12, 3, 4))
    p, r = to_short(x, 16), to_short(x, 20)
    c = CGCoefficients.zeros(x)
    refuses("p must have codes of 16 bits, got 20", backend.kernels.cg_update.cg_advance, x, r, r, c)
    refuses("ap must be a ShortField", backend.kernels.cg_update.cg_residual, r, x, c)
    refuses("x must be a C-contiguous complex64", backend.kernels.cg_update.cg_advance, x[:6], p, r, c)
    with pytest.raises(InputError, match="those of 4 right-hand sides, got 3"):
        backend.kernels.cg_update.cg_residual(r, r, CGCoefficients.zeros(backend.array(random(1, 3, 3))))
    assert ShortField.empty(12, 4, 20, backend.xp).shape == r.shape

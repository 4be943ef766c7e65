"""Shorter forms of links: long links in nine reals, links in their fields."""

from itertools import product

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.link_forms import Packing, StaggeredForm, staggered_bytes
from stages.lqcd.kernels.reference import hisq_dslash as reference
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

EXTENTS = [(8, 4, 4, 6), (6, 10, 4, 2), (2, 2, 2, 2)]


def hisq_links(random, lattice):
    """Fat links of any kind; long links a real number of either sign times U(3) matrices."""
    links = random(lattice.half_volume, 16, 3, 3).reshape(-1, 4, 2, 2, 3, 3)
    unitary = np.linalg.qr(random(*links[:, :, 1].shape).astype(complex))[0]
    links[:, :, 1] = -0.043 * np.array([1, -1])[:, None, None] * unitary
    return links.reshape(-1, 16, 3, 3)


def hisq_fields(random, lattice):
    """Fields of fat links of any kind, and of long ones that are a real number times U(3) matrices."""
    fat, unitary = (random(4, 2, lattice.half_volume, 3, 3).astype(complex) for _ in range(2))
    return fat, -0.043 * np.linalg.qr(unitary)[0]


def test_forms_that_solves_read():
    """HISQ's long links have nine reals for few right-hand sides; short fields are for fewer still."""
    matrices, nine, short, in_fields = StaggeredForm
    forms = {
        (block, precision): Packing(block=block).staggered(precision, 16)
        for block in (4, 5, 8, 9)
        for precision in ("double", "single", "half")
    }
    assert {key for key, form in forms.items() if form is short} == {(4, "half")}
    single = {(block, precision) for block in (5, 8) for precision in ("single", "half")}
    assert {key for key, form in forms.items() if form is nine} == {(4, "double"), (4, "single"), *single}
    assert set(forms.values()) == {matrices, nine, short}
    for precision in ("double", "single", "half"):
        assert Packing(block=1).staggered(precision, 8) is matrices
    assert Packing.of(12, "double-single").staggered("double", 16) is in_fields
    assert Packing.of(12, "double").staggered("double", 16) is matrices


@pytest.mark.parametrize("n", widths((3, 33), (1, 2, 8, 12, 64)))
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_hisq_long_links_in_nine_reals(backend, random, dtype, tolerance, extents, n):
    """A GPU keeps nine numbers of a long link: products are those of matrices to rounding."""
    lattice = Lattice(extents)
    fields, x = hisq_fields(random, lattice), random(lattice.half_volume, 3, n)
    kernels = backend.kernels.hisq_dslash
    form, precision = StaggeredForm.NINE_REALS, "single" if dtype == np.complex64 else "double"
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, ODD, dtype, form)
    if backend.xp is not np:
        assert 2 * packed.links.nbytes == staggered_bytes(lattice, 16, precision, form)
    out = kernels.hisq_dslash(packed, backend.array(x), backend.array(np.full_like(x, np.nan)))
    exact = reference.pack_fields(*fields, lattice, ODD, np.dtype(complex))
    expected = reference.hisq_dslash(exact, x.astype(complex), np.empty(x.shape, complex))
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("n", widths((1, 3), (2, 6)))
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_turns_of_any_angle(backend, random, dtype, tolerance, extents, n):
    """Long links of which elements vanish or are minus one, and sums: nine numbers have no singular case."""
    lattice, kernels = Lattice(extents), backend.kernels.hisq_dslash
    fields = hisq_fields(random, lattice)
    number = np.arange(lattice.half_volume)
    for mu in range(4):
        permuted = np.roll(np.eye(3), mu, axis=0) * np.where((number + mu) % 2, 1, -1)[:, None, None]
        fields[1][mu, EVEN] = 0.043 * permuted * np.exp(0.5j * np.pi * (number % 4))[:, None, None]
    x, y = random(lattice.half_volume, 3, n), random(lattice.half_volume, 3, n)
    form = StaggeredForm.NINE_REALS
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, EVEN, dtype, form)
    sums, out = backend.array(np.zeros(n)), backend.array(np.full_like(x, np.nan))
    kernels.hisq_dslash(packed, backend.array(x), out, diagonal=backend.array(y), a=0.3, b=-1.1, dots=sums)
    exact = reference.pack_fields(*fields, lattice, EVEN, np.dtype(complex))
    expected = 0.3 * y - 1.1 * reference.hisq_dslash(exact, x.astype(complex), np.empty(x.shape, complex))
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()
    products = (y.conj() * expected).real
    assert np.abs(backend.host(sums) - products.sum(axis=(0, 1))).max() < tolerance * np.abs(products).sum()


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("spoiled", ["all", "one", "first", "length"])
def test_other_long_links_keep_18_reals(backend, random, tolerance, spoiled):
    """Long links of any kind, and one among many that is no turn, is zero, or is longer than the others."""
    lattice = Lattice((4, 4, 4, 6))
    fields = hisq_fields(random, lattice)
    if spoiled == "all":
        fields = [random(4, 2, lattice.half_volume, 3, 3).astype(complex) for _ in range(2)]
    elif spoiled == "one":
        fields[1][2, EVEN, 7, 1, 1] += 0.01
    elif spoiled == "first":
        fields[1][0, :, 0] = 0
    else:
        fields[1][3, ODD, 11] *= 1.01
    x = random(lattice.half_volume, 3, 3)
    kernels = backend.kernels.hisq_dslash
    form = StaggeredForm.NINE_REALS
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, ODD, x.dtype, form)
    if backend.xp is not np:
        assert 2 * packed.links.nbytes == staggered_bytes(lattice, 16, "single", StaggeredForm.MATRICES)
    out = kernels.hisq_dslash(packed, backend.array(x), backend.array(np.full_like(x, np.nan)))
    exact = reference.pack_fields(*fields, lattice, ODD, np.dtype(complex))
    expected = reference.hisq_dslash(exact, x.astype(complex), np.empty(x.shape, complex))
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["complex128"], indirect=True)
@pytest.mark.parametrize(
    ("directions", "n"),
    widths([(16, 3), (16, 33), (8, 3)], [(8, 33), *product((16, 8), (1, 2, 8, 12, 16, 64))]),
)
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_links_in_their_fields_give_the_same_bits(backend, random, extents, directions, n):
    """What is read where it lies is summed in the same order as what is packed; errors of shape are told."""
    lattice, kernels = Lattice(extents), backend.kernels.hisq_dslash
    fields = [backend.array(field) for field in hisq_fields(random, lattice)]
    if directions == 8:
        fields[1] = None
    x, y = (backend.array(random(lattice.half_volume, 3, n)) for _ in range(2))
    for parity in (EVEN, ODD):
        outs, sums = [], []
        for form in (StaggeredForm.IN_FIELDS, StaggeredForm.MATRICES):
            packed = kernels.pack_fields(*fields, lattice, parity, complex, form)
            outs.append(backend.array(np.full((lattice.half_volume, 3, n), np.nan, complex)))
            sums.append(backend.array(np.zeros(n)))
            kernels.hisq_dslash(packed, x, outs[-1], diagonal=y, a=0.3, b=-1.1, dots=sums[-1])
        assert np.array_equal(*map(backend.host, outs)) and np.array_equal(*map(backend.host, sums))
    with pytest.raises(InputError, match="one_hop"):
        kernels.pack_fields(fields[0][:3], fields[1], lattice, EVEN, complex)

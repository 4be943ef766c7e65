"""Links of Wilson-type operators packed from their fields, in every form, against doubled links."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.gauge.wilson_links import Anisotropy, wilson_links
from stages.lqcd.kernels.link_forms import Packing, WilsonForm
from stages.lqcd.kernels.reference import wilson_dslash as reference
from stages.lqcd.kernels.short_numbers import from_half, numbers_like, to_half
from stages.lqcd.lattice.geometry import ODD, Lattice

LATTICES = [(6, 4, 2, 4), (2, 2, 2, 2), pytest.param((8, 8, 4, 6), marks=pytest.mark.slow)]
BOUNDARIES = ["antiperiodic", ("antiperiodic", "periodic", "antiperiodic", "periodic"), "dirichlet"]


def fields_of(backend, random, lattice, boundary, anisotropy):
    """Links of an operator, complex128 on the host."""
    thin = random(4, 2, lattice.half_volume, 3, 3).astype(complex)
    backend.kernels.smearing.special_unitary(links := backend.array(thin.reshape(-1, 3, 3)), links)
    thin = backend.host(links).reshape(thin.shape)
    return wilson_links(thin, lattice, boundary=boundary, anisotropy=anisotropy).links


def packed_links(backend, links, weights, lattice, parity, dtype, form):
    kernels = backend.kernels.wilson_dslash
    return kernels.pack_fields(backend.array(links), weights, lattice, parity, dtype, form)


@pytest.mark.parametrize("form", WilsonForm, ids=str)
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("extents", LATTICES, ids=str)
def test_packed_fields_are_the_doubled_links(backend, random, dtype, tolerance, extents, boundary, form):
    """All of D, and its terms where links are in tiles: on a host those of which another test has kernels."""
    if form is WilsonForm.IN_FIELDS and dtype == np.complex64:
        pytest.skip("products from fields are in double")
    lattice, parity, sign, anisotropy = Lattice(extents), ODD, -1, Anisotropy(2.4, 0.9)
    links = fields_of(backend, random, lattice, boundary, anisotropy)
    exactly = reference.pack_fields(links, anisotropy.weights, lattice, parity, np.dtype(complex))
    packed = packed_links(backend, links, anisotropy.weights, lattice, parity, dtype, form)
    kernels = backend.kernels.wilson_dslash
    for n in (1, 3):
        x = random(lattice.half_volume, 12, n)
        out = backend.array(np.full_like(x, np.nan))
        exact = np.empty(x.shape, complex)
        reference.wilson_dslash(exactly, x.astype(complex), exact, sign=sign)
        kernels.wilson_dslash(packed, backend.array(x), out, sign=sign)
        assert np.abs(backend.host(out) - exact).max() <= tolerance * np.abs(exact).max()
        terms = form is not WilsonForm.IN_FIELDS and (n > 1 or backend.xp is not np)
        for direction in (range(8) if backend.xp is not np else (0, 5)) if terms else ():
            reference.wilson_hop(exactly, direction, x.astype(complex), exact, sign=sign)
            kernels.wilson_hop(packed, direction, backend.array(x), out, sign=sign)
            assert np.abs(backend.host(out) - exact).max() <= tolerance * 20


def test_forms_that_solves_read():
    """Two rows in single precision; in double where they gain, and the fields where solves are mixed."""
    assert {Packing.of(block).wilson("single") for block in (1, 16)} == {WilsonForm.TWO_ROWS}
    in_double = [Packing.of(block, "double").wilson("double") for block in (1, 2, 15, 16)]
    assert in_double == [WilsonForm.MATRICES, *[WilsonForm.TWO_ROWS] * 2, WilsonForm.MATRICES]
    assert Packing.of(8, "double-half").wilson("double") is WilsonForm.IN_FIELDS


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", ["dirichlet", "antiperiodic", "not SU(3)"])
def test_links_of_su3_alone_lie_in_12_reals(backend, random, dtype, boundary):
    if backend.xp is np:
        pytest.skip("the host has one form")
    lattice, weights = Lattice((4, 4, 4, 4)), (0.4, 0.4, 0.4, 1.0)
    words = "antiperiodic" if boundary == "not SU(3)" else boundary
    links = fields_of(backend, random, lattice, words, Anisotropy())
    if boundary == "not SU(3)":
        links[1, 0, 77] *= 1.01
    rows = {}
    for form in (WilsonForm.MATRICES, WilsonForm.TWO_ROWS):
        packed = packed_links(backend, links, weights, lattice, ODD, dtype, form)
        rows[form] = packed.links.shape[3]
        assert (packed.factors is None) == (rows[form] == 3)
    assert list(rows.values()) == ([3, 2] if boundary == "antiperiodic" else [3, 3])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["complex128"], indirect=True)
def test_what_a_form_is_not_for_is_refused(backend, random, dtype):
    if backend.xp is np:
        pytest.skip("the host has one form")
    lattice, kernels = Lattice((4, 4, 4, 4)), backend.kernels.wilson_dslash
    links = fields_of(backend, random, lattice, "antiperiodic", Anisotropy())
    x = backend.array(random(lattice.half_volume, 12, 2))
    packed = packed_links(backend, links, (1.0,) * 4, lattice, ODD, dtype, WilsonForm.IN_FIELDS)
    with pytest.raises(InputError, match="needs links in tiles"):
        kernels.wilson_hop(packed, 3, x, backend.xp.empty_like(x))


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("n", widths((3,), (2, 16)))
def test_spinors_in_16_bits_with_links_of_any_form(backend, random, n):
    """Packed in 12 reals on a GPU, or in 18: products differ by rounding."""
    lattice, kernels = Lattice((4, 4, 4, 4)), backend.kernels.wilson_dslash
    links = fields_of(backend, random, lattice, "antiperiodic", Anisotropy())
    x, y = (to_half(backend.array(random(lattice.half_volume, 12, n))) for _ in range(2))
    results = [
        kernels.wilson_dslash(packed, x, numbers_like(x), diagonal=y, a=0.4, b=-0.3)
        for packed in (
            packed_links(backend, links, (1.0,) * 4, lattice, ODD, np.complex64, form)
            for form in (WilsonForm.TWO_ROWS, WilsonForm.MATRICES)
        )
    ]
    first, second = (backend.host(from_half(result)) for result in results)
    assert np.linalg.norm(first - second) < 3e-5 * np.linalg.norm(first)

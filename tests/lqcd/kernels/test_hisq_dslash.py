"""The dslash against shifts of the plain lexicographic lattice; its misuse."""

from itertools import product

import numpy as np
import pytest
from doubled_links import packed_links
from widths import in_single, widths

from stages.base.errors import InputError
from stages.lqcd.kernels import hisq_dslash
from stages.lqcd.kernels.directions import displacements, staple_tables
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import to_lexicographic, to_parity
from support.matrices import close
from support.refusals import refuses

WIDTHS = widths((3, 33), (1, 8, 16, 64))
LATTICES = [(6, 4, 10, 8), (16, 6, 4, 4), (4, 4, 4, 4), (2, 4, 6, 14)]


def by_shifts(links, x, lattice, parity):
    """sum_d links[:, d] x(neighbour) by rolling the whole lexicographic lattice, in double."""
    embedded = np.zeros((2, *x.shape), complex)
    embedded[1 - parity] = x
    field = to_lexicographic(embedded, lattice)
    total = np.zeros_like(field)
    for d, (mu, hops) in enumerate(displacements(links.shape[1])):
        doubled = np.zeros((2, *links[:, d].shape), complex)
        doubled[parity] = links[:, d]
        total += to_lexicographic(doubled, lattice) @ np.roll(field, -hops, axis=3 - mu)
    return to_parity(total, lattice)[parity]


@pytest.mark.parametrize("n", WIDTHS)
def test_equals_shifts_of_the_lattice(backend, random, tolerance, n):
    lattice = Lattice((6, 4, 10, 8))
    links, x = random(lattice.half_volume, 16, 3, 3), random(lattice.half_volume, 3, n)
    packed = packed_links(backend.kernels.hisq_dslash, backend.array(links), lattice, EVEN)
    out = backend.array(np.full_like(x, np.nan))
    assert backend.kernels.hisq_dslash.hisq_dslash(packed, backend.array(x), out) is out
    assert close(backend.host(out), by_shifts(links, x, lattice, EVEN), tolerance)


@in_single
def test_links_beyond_the_caches_give_the_same_bits(random, monkeypatch):
    lattice = Lattice((4, 4, 4, 4))
    links, x, y = (random(lattice.half_volume, *rest) for rest in ((16, 3, 3), (3, 1), (3, 1)))
    packed = packed_links(hisq_dslash, links, lattice, EVEN)

    def results():
        dots = np.full(1, np.nan)
        given = {"diagonal": y, "a": 0.3, "b": -1.1, "dots": dots}
        plain, shifted = (
            hisq_dslash.hisq_dslash(packed, x, np.empty_like(x), **options) for options in ({}, given)
        )
        return plain.tobytes(), shifted.tobytes(), dots[0]

    expected = results()
    monkeypatch.setattr("stages.lqcd.kernels.cpu.hisq_dslash.last_cache_bytes", lambda: 0)
    assert results() == expected


@pytest.mark.parametrize("directions", [16, 8, 6])
@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("extents", LATTICES, ids=str)
def test_every_shape_of_lattice(backend, random, tolerance, extents, parity, directions):
    lattice = Lattice(extents)
    links, x = random(lattice.half_volume, directions, 3, 3), random(lattice.half_volume, 3, 3)
    packed = packed_links(backend.kernels.hisq_dslash, backend.array(links), lattice, parity)
    out = backend.array(np.full_like(x, np.nan))
    backend.kernels.hisq_dslash.hisq_dslash(packed, backend.array(x), out)
    assert close(backend.host(out), by_shifts(links, x, lattice, parity), tolerance)


@pytest.mark.parametrize("n", widths((3, 33), (1, 8)))
def test_adds_the_diagonal_in_the_same_pass(backend, random, tolerance, n):
    lattice = Lattice((4, 6, 4, 6))
    links, x, y = (random(lattice.half_volume, *rest) for rest in ((16, 3, 3), (3, n), (3, n)))
    packed = packed_links(backend.kernels.hisq_dslash, backend.array(links), lattice, ODD)
    expected = 0.37 * y.astype(complex) - 1.9 * by_shifts(links, x, lattice, ODD)
    x, diagonal, out = backend.array(x), backend.array(y), backend.array(np.full_like(y, np.nan))
    backend.kernels.hisq_dslash.hisq_dslash(packed, x, out, diagonal=diagonal, a=0.37, b=-1.9)
    assert close(backend.host(out), expected, tolerance)
    backend.kernels.hisq_dslash.hisq_dslash(packed, x, diagonal, diagonal=diagonal, a=0.37, b=-1.9)
    assert np.array_equal(backend.host(diagonal), backend.host(out))


@pytest.mark.parametrize(
    ("directions", "n"),
    widths(
        [(16, 3), (16, 33), (8, 3)],
        [(8, 33), *((directions, n) for directions in (16, 8) for n in (1, 8, 12, 16, 56, 64))],
    ),
)
def test_sums_diagonal_times_out_in_the_same_pass(backend, random, tolerance, directions, n):
    """The sums are those of the field that is stored, also where it takes the diagonal's place."""
    lattice = Lattice((8, 4, 6, 6))
    links, x, y = (random(lattice.half_volume, *rest) for rest in ((directions, 3, 3), (3, n), (3, n)))
    packed = packed_links(backend.kernels.hisq_dslash, backend.array(links), lattice, EVEN)
    x, diagonal, out = backend.array(x), backend.array(y), backend.array(np.full_like(y, np.nan))
    dots = backend.array(np.full(n, np.nan))
    backend.kernels.hisq_dslash.hisq_dslash(packed, x, out, diagonal=diagonal, a=2.0, b=-0.1, dots=dots)
    products = y.conj() * backend.host(out).astype(complex)
    scale = np.abs(products).sum(axis=(0, 1)).max()
    limit = 2e-8 if y.dtype == np.complex64 else tolerance  # single products of a site, added in double
    assert np.abs(backend.host(dots) - products.real.sum(axis=(0, 1))).max() <= limit * scale
    again = backend.array(np.full(n, np.nan))
    backend.kernels.hisq_dslash.hisq_dslash(packed, x, diagonal, diagonal=diagonal, a=2.0, b=-0.1, dots=again)
    assert np.array_equal(backend.host(diagonal), backend.host(out))
    assert np.array_equal(backend.host(again), backend.host(dots))


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_sums_need_a_diagonal_and_doubles(backend, random):
    lattice = Lattice((4, 4, 4, 4))
    links, x = backend.array(random(128, 16, 3, 3)), backend.array(random(128, 3, 2))
    packed = packed_links(backend.kernels.hisq_dslash, links, lattice, EVEN)
    apply, out = backend.kernels.hisq_dslash.hisq_dslash, backend.array(random(128, 3, 2))
    refuses("give a diagonal", apply, packed, x, out, dots=backend.array(np.zeros(2)))
    with pytest.raises(InputError, match=r"dots must be .* float64 array of shape \(2,\)"):
        apply(packed, x, out, diagonal=out, dots=backend.array(np.zeros(2, np.float32)))


@pytest.mark.parametrize(
    ("dtype", "directions"),
    widths([*product(["complex64"], [16, 8, 6]), ("complex128", 16)], [("complex128", 8), ("complex128", 6)]),
)
def test_one_right_hand_side_has_the_bits_that_it_has_among_others(dtype, directions):
    """The processor has a kernel for one alone, with other vectors and the same sums."""
    lattice, rng = Lattice((4, 6, 2, 2)), np.random.default_rng(1789)
    half = lattice.half_volume

    def normal(*shape):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)

    packed = packed_links(hisq_dslash, normal(half, directions, 3, 3), lattice, ODD)
    x, diagonal = normal(half, 3, 3), normal(half, 3, 3)
    dots, alone_dots = np.empty(3), np.empty(1)
    plain = hisq_dslash.hisq_dslash(packed, x, np.empty_like(x))
    shifted = hisq_dslash.hisq_dslash(
        packed, x, np.empty_like(x), diagonal=diagonal, a=0.3, b=-1.1, dots=dots
    )
    for n in range(3):
        column, added = (np.ascontiguousarray(field[..., n : n + 1]) for field in (x, diagonal))
        alone = hisq_dslash.hisq_dslash(packed, column, np.empty_like(column))
        assert alone.tobytes() == np.ascontiguousarray(plain[..., n : n + 1]).tobytes()
        hisq_dslash.hisq_dslash(packed, column, added, diagonal=added, a=0.3, b=-1.1, dots=alone_dots)
        assert added.tobytes() == np.ascontiguousarray(shifted[..., n : n + 1]).tobytes()
        assert alone_dots[0] == dots[n]


MISUSE = {
    "dtype": (lambda x: x.astype("complex128"), "x must be a C-contiguous complex64 array"),
    "sites": (lambda x: x[:-1].copy(), r"shape \(128, 3, 2\), got complex64 \(127, 3, 2\)"),
    "order": (lambda x: x.copy().transpose(0, 2, 1)[:, :, :], "x must be"),
    "dimensions": (lambda x: x[:, :, 0].copy(), "x must have shape"),
}


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("case", MISUSE)
def test_refuses_a_wrong_field(backend, random, case):
    lattice = Lattice((4, 4, 4, 4))
    links, x = backend.array(random(128, 16, 3, 3)), backend.array(random(128, 3, 2))
    packed = packed_links(backend.kernels.hisq_dslash, links, lattice, EVEN)
    change, message = MISUSE[case]
    refuses(message, backend.kernels.hisq_dslash.hisq_dslash, packed, change(x), x.copy())


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refuses_to_overwrite_its_input(backend, random):
    lattice = Lattice((4, 4, 4, 4))
    links, x = backend.array(random(128, 16, 3, 3)), backend.array(random(128, 3, 2))
    packed = packed_links(backend.kernels.hisq_dslash, links, lattice, EVEN)
    refuses("must not be its input", backend.kernels.hisq_dslash.hisq_dslash, packed, x, x[:])


@pytest.mark.parametrize("name", ["one_hop", "three_hops", "links"])
def test_refuses_wrong_links(backend, name):
    right, wrong = (backend.array(np.zeros((4, 2, sites, 3, 3), complex)) for sites in (128, 64))
    kernels, at = backend.kernels.hisq_dslash, (Lattice((4, 4, 4, 4)), EVEN, complex)
    with pytest.raises(InputError, match=rf"{name} must be .* shape \(4, 2, 128, 3, 3\)"):
        if name == "links":
            kernels.pack_spatial(wrong, *at)
        else:
            kernels.pack_fields(*((wrong, right) if name == "one_hop" else (right, wrong)), *at)


def test_staple_tables_close_the_plaquette():
    """x -> x-nu -> x-nu+mu, then +nu, is x+mu."""
    lattice = Lattice((6, 4, 2, 8))
    for parity in (EVEN, ODD):
        _, side, _, corner = staple_tables(lattice, parity, 0, 3)
        assert np.array_equal(lattice.neighbour(parity, 3, 1)[corner], side)

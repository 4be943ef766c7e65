"""Covariant shifts and contractions on time slices against those of the plain lexicographic lattice."""

import numpy as np
import pytest
from widths import widths

from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import to_lexicographic
from support.refusals import refuses

LATTICE = Lattice((4, 2, 6, 4))


def lexicographic(field, lattice):
    """``[time, parity, site, ...]`` of all slices to ``[t, z, y, x, ...]``."""
    by_parity = field.swapaxes(0, 1).reshape(2, lattice.half_volume, *field.shape[3:])
    return to_lexicographic(by_parity, lattice)


@pytest.mark.parametrize("columns", [1, 5, 40])
@pytest.mark.parametrize("mu", [0, 1, 2])
@pytest.mark.parametrize("step", [1, -1])
def test_shift_is_link_times_neighbour(backend, random, tolerance, columns, mu, step):
    times, sites = LATTICE.time_extent, LATTICE.sites_per_slice
    links, field = random(4, 2, LATTICE.half_volume, 3, 3), random(times, 2, sites, 3, columns)
    u, f = to_lexicographic(links[mu], LATTICE), lexicographic(field, LATTICE)
    axis = 3 - mu
    if step == -1:
        u = np.roll(u, 1, axis).conj().swapaxes(-1, -2)
    expected = u.astype(complex) @ np.roll(f, -step, axis)
    kernel, arrays = backend.kernels.slice_products.slice_shift, (backend.array(links), backend.array(field))
    out = backend.array(np.full_like(field, np.nan))
    assert kernel(*arrays, out, LATTICE, mu, step) is out
    whole = backend.host(out)
    assert np.abs(lexicographic(whole, LATTICE) - expected).max() < 20 * tolerance
    for first, last in [(1, 2), (1, 4), (2, 4)]:
        part = backend.array(field[first:last].copy())
        piece = kernel(arrays[0], part, backend.array(field[first:last].copy()), LATTICE, mu, step, first)
        assert np.array_equal(backend.host(piece), whole[first:last])


def test_refuses_what_does_not_fit(backend, random):
    kernel = backend.kernels.slice_products.slice_shift
    links = backend.array(random(4, 2, LATTICE.half_volume, 3, 3))
    field = backend.array(random(2, 2, LATTICE.sites_per_slice, 3, 2))
    out = backend.array(random(*field.shape))
    refuses(r"along mu = 0, 1, 2 by step 1 or -1, got 3 by 1", kernel, links, field, out, LATTICE, 3, 1)
    refuses("2 slices from slice 3 on are not among the 4", kernel, links, field, out, LATTICE, 0, 1, 3)
    refuses("must not be its input", kernel, links, field, field, LATTICE, 0, 1)
    refuses("links must be", kernel, links[:3], field, out, LATTICE, 0, 1)


def embed(field, lattice, parity):
    """A field of one parity on the lexicographic lattice, zero on the other parity, in double."""
    both = np.zeros((2, *field.shape), complex)
    both[parity] = field
    return to_lexicographic(both, lattice)


@pytest.mark.parametrize("n", widths((1, 33), (8,)))
@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_current_equals_shifts_of_the_lattice(backend, random, tolerance, n, parity):
    lattice = Lattice((6, 4, 2, 8))
    links = random(4, lattice.half_volume, 3, 3)
    noise, solution = random(lattice.half_volume, 3, n), random(lattice.half_volume, 3, n)
    current = backend.kernels.slice_products.one_link_current(
        *(backend.array(field) for field in (links, noise, solution)), lattice, parity
    )
    assert current.dtype == np.float64
    bra, ket = embed(noise, lattice, parity), embed(solution, lattice, 1 - parity)
    expected = np.empty((n, 4, lattice.time_extent))
    for mu in range(4):
        hop = embed(links[mu], lattice, parity) @ np.roll(ket, -1, axis=3 - mu)
        expected[:, mu] = -np.einsum("tzyxcn,tzyxcn->nt", bra.conj(), hop).imag
    assert np.abs(backend.host(current) - expected).max() <= 4 * tolerance * np.abs(expected).max()


@pytest.mark.parametrize("n", widths((1, 33), (8,)))
def test_dot_products_by_time_slice(backend, random, tolerance, n):
    lattice = Lattice((4, 6, 4, 10))
    x, y = random(lattice.half_volume, 3, n), random(lattice.half_volume, 3, n)
    dots = backend.kernels.slice_products.slice_dots(backend.array(x), backend.array(y), lattice)
    assert dots.dtype == np.complex128
    expected = np.einsum("tzyxcn,tzyxcn->nt", embed(x, lattice, ODD).conj(), embed(y, lattice, ODD))
    assert np.abs(backend.host(dots) - expected).max() <= tolerance * np.abs(expected).max()

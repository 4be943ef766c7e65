"""Contractions per time slice against the same sums over the plain lexicographic lattice."""

import numpy as np
import pytest
from widths import widths

from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import to_lexicographic


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


def test_slices_add_up_to_the_lattice(backend, random, tolerance):
    lattice = Lattice((4, 4, 4, 6))
    x, y = (backend.array(random(lattice.half_volume, 3, 3)) for _ in range(2))
    by_slice = backend.host(backend.kernels.slice_products.slice_dots(x, y, lattice)).sum(axis=1)
    whole = backend.host(backend.kernels.block_blas.dots(x, y))
    assert np.abs(by_slice - whole).max() <= tolerance * np.abs(whole).max()

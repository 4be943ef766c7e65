"""The Laplacian on time slices against its definition, and the operator folded onto even sites."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.laplacian import SpatialHop, folded_laplacian
from stages.lqcd.dirac.operator import affine
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import to_lexicographic, to_parity
from workflows.certification.fields import rough_links

EXTENTS = [(4, 4, 4, 4), (2, 4, 6, 8), (6, 2, 4, 2)]


def by_definition(links, lattice, x):
    """sum_j U_j(x) v(x+j) + U_j(x-j)^dag v(x-j) of a field ``[parity, site, 3, N]``, by rolling it."""
    field = to_lexicographic(x, lattice)
    total = np.zeros_like(field)
    for mu in range(3):
        U = to_lexicographic(links[mu], lattice)
        axis = 3 - mu
        total += U @ np.roll(field, -1, axis=axis)
        total += np.roll(U.conj().swapaxes(-1, -2) @ field, 1, axis=axis)
    return to_parity(total, lattice)


def random_field(lattice, *rest):
    rng = np.random.default_rng(29)
    shape = (2, lattice.half_volume, 3, *rest)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_hop_is_its_definition(extents):
    lattice = Lattice(extents)
    links, x = rough_links(5, lattice), random_field(lattice, 3)
    hop, expected = SpatialHop(links, lattice), by_definition(links, lattice, x)
    for parity in (EVEN, ODD):
        np.testing.assert_allclose(hop.apply_to(parity, x[1 - parity]), expected[parity], atol=1e-13)
        combined = hop.apply_to(parity, x[1 - parity], diagonal=x[parity], a=0.3, b=-2.0)
        np.testing.assert_allclose(combined, 0.3 * x[parity] - 2 * expected[parity], atol=1e-13)


def test_folded_operator():
    """36 - H^2 on even sites, in both precisions, alone and in a linear combination."""
    lattice = Lattice((4, 4, 2, 4))
    links, x = rough_links(7, lattice), random_field(lattice, 3)
    A = folded_laplacian(SpatialHop(links, lattice))
    x[ODD] = 0
    squared = by_definition(links, lattice, by_definition(links, lattice, x))
    expected = 36 * x[EVEN] - squared[EVEN]
    np.testing.assert_allclose(A.apply(x[EVEN]), expected, atol=1e-12)
    combined = np.empty_like(x[EVEN])
    affine(A, 0.7, -1.5, x[EVEN], combined)
    np.testing.assert_allclose(combined, 0.7 * x[EVEN] - 1.5 * expected, atol=1e-12)
    single = A.astype(np.complex64).apply(x[EVEN].astype(np.complex64))
    assert single.dtype == np.complex64 and np.abs(single - expected).max() < 1e-4
    assert A.astype(np.complex128) is A


def test_refusals():
    lattice = Lattice((4, 4, 4, 4))
    with pytest.raises(InputError, match="complex64 or complex128, got int64"):
        SpatialHop(rough_links(13, lattice), lattice, np.int64)
    with pytest.raises(InputError, match=r"have shape \(4, 2, 128, 3, 3\), got \(2, 2, 128, 3, 3\)"):
        SpatialHop(rough_links(13, lattice)[:2], lattice)

"""Kernels written once for both libraries, against plain NumPy and against what defines them."""

from __future__ import annotations

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def dagger(matrices):
    return matrices.conj().swapaxes(-1, -2)


def test_each_right_hand_side_by_its_number(backend, random, dtype):
    lanes, x, y = backend.kernels.lane_blas, random(7, 3, 4), random(7, 3, 4)
    factor = np.array([0.5, 3.0, -1.0, 0.3]).astype(x.real.dtype)
    field, other, numbers = backend.array(x), backend.array(y), backend.array(factor)
    out = backend.xp.empty_like(field)
    lanes.lane_scale(field, numbers, out)
    assert (backend.host(out) == x * factor).all()
    lanes.lane_divide(field, backend.array(factor.astype(float)), out)
    assert np.abs(backend.host(out) - x / factor).max() < 1e-6 and out.dtype == dtype
    lanes.lane_add(other, field, numbers)
    assert np.abs(backend.host(other) - (y + x * factor)).max() < (1e-6 if dtype == np.complex64 else 1e-15)
    assert (backend.host(lanes.lane_take(field, np.array([2, 0]))) == x[..., [2, 0]]).all()
    before = backend.host(other).copy()
    lanes.lane_choose(other, field, np.array([True, False, False, True]))
    assert (backend.host(other)[..., [0, 3]] == x[..., [0, 3]]).all()
    assert (backend.host(other)[..., [1, 2]] == before[..., [1, 2]]).all()
    with pytest.raises(InputError, match="4 numbers, one a right-hand side"):
        lanes.lane_scale(field, numbers[:3], out)
    with pytest.raises(InputError, match="x must be"):
        lanes.lane_add(other[:5], field, numbers)


def test_differences_and_norms(backend, random, dtype):
    x, y = random(11, 3), random(11, 3)
    field = backend.array(x)
    assert backend.kernels.block_blas.difference(field, backend.array(y), field) is field
    assert (backend.host(field) == x - y).all()
    norms = backend.host(backend.kernels.block_blas.norms(backend.array(x)))
    assert np.allclose(norms, np.linalg.norm(x, axis=0), rtol=1e-6 if dtype == np.complex64 else 1e-14)


def test_inverses(backend):
    rng = np.random.default_rng(4)
    a = rng.normal(size=(30, 2, 6, 6)) + 1j * rng.normal(size=(30, 2, 6, 6))
    h = a + dagger(a) + 9 * np.eye(6)
    inverses = backend.kernels.matrix_inverse
    found = backend.host(inverses.inverse(backend.array(a)))
    assert np.abs(found @ a - np.eye(6)).max() < 1e-10
    found = inverses.hermitian_inverse(backend.array(h))
    assert inverses.is_finite(found)
    found = backend.host(found)
    assert (found == dagger(found)).all() and np.abs(found @ h - np.eye(6)).max() < 1e-10
    h[3, 1] = 0
    assert not inverses.is_finite(inverses.inverse(backend.array(h)))
    assert not inverses.is_finite(backend.array(np.array([1.0, np.nan * 1j])))
    with pytest.raises(InputError, match=r"complex matrices \[..., n, n\]"):
        inverses.inverse(backend.array(a[..., :5]))


def test_constant_plus_clover_term(backend, random):
    blocks = random(5, 2, 6, 6)
    found = backend.host(backend.kernels.clover.plus_constant(backend.array(blocks), 0.7))
    assert (found == blocks + 0.7 * np.eye(6, dtype=blocks.dtype)).all() and found.dtype == blocks.dtype


def test_vectors_of_aggregates_and_fields(backend, random, dtype):
    """Gather, make orthonormal, cut to some places, and write back as columns."""
    aggregates, sites_each, n, k = 3, 4, 5, 2
    kernels = backend.kernels.aggregation
    fields = random(aggregates * sites_each, 2 * n, k)
    sites = np.random.default_rng(1).permutation(aggregates * sites_each).astype(np.int32).reshape(3, 4)
    table = backend.array(sites)
    vectors = kernels.gathered(backend.array(fields), table)
    expected = fields[sites].reshape(aggregates, sites_each, 2, n, k).swapaxes(1, 2).reshape(3, 2, -1, k)
    assert (backend.host(vectors) == expected).all()

    places = np.array([[3, 1], [0, 2], [2, 1]], np.int32)
    found = backend.host(kernels.cut(vectors, backend.array(places), sites_each))
    blocks = expected.reshape(aggregates, 2, sites_each, n, k)
    for aggregate, chosen in enumerate(places):
        assert (found[aggregate] == blocks[aggregate][:, chosen].reshape(2, -1, k)).all()

    gram = dagger(expected.astype(complex)) @ expected
    root = kernels.inverse_root(backend.array(gram))
    q = backend.host(kernels.combined(vectors, root))
    assert q.dtype == dtype and np.abs(dagger(q) @ q - np.eye(k)).max() < 1e-5
    gram[1, 0] = 1
    assert not backend.kernels.matrix_inverse.is_finite(kernels.inverse_root(backend.array(gram)))

    out = backend.array(np.zeros((aggregates * sites_each, 2 * n, 2 * k), dtype))
    kernels.scattered(vectors, table, out)
    written = backend.host(out)
    assert (written[:, :n, :k] == fields[:, :n]).all() and (written[:, n:, k:] == fields[:, n:]).all()
    assert not written[:, n:, :k].any() and not written[:, :n, k:].any()


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_spatial_links_both_ways(backend, random, parity):
    lattice = Lattice((4, 2, 6, 4))
    links = random(4, 2, lattice.half_volume, 3, 3)
    out = backend.array(np.zeros((lattice.half_volume, 6, 3, 3), links.dtype))
    backend.kernels.doubled_links.spatial_links(backend.array(links), lattice, parity, out)
    found = backend.host(out)
    for mu in range(3):
        assert (found[:, 2 * mu] == links[mu, parity]).all()
        behind = lattice.neighbour(parity, mu, -1)
        assert (found[:, 2 * mu + 1] == dagger(links[mu, 1 - parity][behind])).all()

"""Kernels written once for both libraries, against plain NumPy and against what defines them."""

import numpy as np

from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import dagger
from support.refusals import refuses


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
    refuses("4 numbers, one a right-hand side", lanes.lane_scale, field, numbers[:3], out)
    refuses("x must be", lanes.lane_add, other[:5], field, numbers)


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
    h = a + dagger(a)
    inverses = backend.kernels.coarse_dslash
    found = backend.host(inverses.inverse(backend.array(a)))
    assert np.abs(found @ a - np.eye(6)).max() < 1e-10
    h[3, 1] = 0
    assert not inverses.is_finite(inverses.inverse(backend.array(h)))
    assert not inverses.is_finite(backend.array(np.array([1.0, np.nan * 1j])))
    refuses(r"complex matrices \[..., n, n\]", inverses.inverse, backend.array(a[..., :5]))


def test_vectors_of_aggregates_and_fields(backend, random, dtype):
    """Gather, make orthonormal, cut to some places, and write back as columns."""
    aggregates, sites_each, n, k = 3, 4, 5, 2
    kernels = backend.kernels.aggregation
    fields = random(aggregates * sites_each, 2 * n, k)
    sites = np.random.default_rng(1).permutation(aggregates * sites_each).astype(np.int32).reshape(3, 4)
    table = backend.array(sites)
    vectors = backend.array(np.empty((aggregates, 2, sites_each * n, k), dtype))
    kernels.gather(backend.array(fields), table, vectors)
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
    assert not backend.kernels.coarse_dslash.is_finite(kernels.inverse_root(backend.array(gram)))

    out = backend.array(np.zeros((aggregates * sites_each, 2 * n, 2 * k), dtype))
    kernels.scattered(vectors, table, out)
    written = backend.host(out)
    assert (written[:, :n, :k] == fields[:, :n]).all() and (written[:, n:, k:] == fields[:, n:]).all()
    assert not written[:, n:, :k].any() and not written[:, :n, k:].any()


def test_products_of_time_slices(backend, random, dtype):
    kernels, x = backend.kernels.slice_products, random(3, 2, 5, 3, 4)
    phases, field = random(3, 2, 5), backend.array(x)
    out = backend.xp.empty_like(field)
    assert kernels.weighted(field, backend.array(phases), out) is out
    assert np.allclose(backend.host(out), x * phases[..., None, None], rtol=1e-6)
    refuses("phases must be", kernels.weighted, field, backend.array(phases[:2]), out)
    flat, factor = x.reshape(3, 10, 3, 4), np.arange(12.0).reshape(3, 4)
    norms2 = backend.host(kernels.slice_norms2(field.reshape(flat.shape)))
    assert norms2.dtype == float and np.allclose(norms2, (abs(flat) ** 2).sum(axis=(1, 2)), rtol=1e-6)
    kernels.slice_add(field.reshape(flat.shape), backend.array(flat), backend.array(factor))
    assert np.allclose(backend.host(field).reshape(flat.shape), flat * (1 + factor[:, None, None]), rtol=1e-5)
    chosen = np.array([[1, 0], [0, 0], [0, 1]])
    kernels.put_rows(backend.array(phases[0]), chosen, rows := backend.xp.empty_like(backend.array(phases)))
    assert (backend.host(rows) == phases[0][chosen]).all()


def test_sources_of_a_slice(backend, random, dtype):
    """Those of spins and columns where the coefficients are not zero, the others as they were."""
    vectors = random(2, 5, 3, 6)
    rho = np.zeros((4, 6, 3), complex)
    rho[1, 2:4, 1:], rho[3, 3, 0] = np.arange(4).reshape(2, 2) + 1j, 2
    out = backend.array(np.zeros((2, 5, 4, 3, 3), complex))
    backend.kernels.slice_products.put_sources(backend.array(vectors), rho, out)
    expected = np.einsum("pxci,sij->pxscj", vectors, rho)
    assert np.allclose(backend.host(out), expected, rtol=1e-6)


def test_spin_pairs_of_a_slice(backend):
    rng = np.random.default_rng(9)
    spinors = rng.normal(size=(2, 6, 4, 3, 4, 3)) + 1j * rng.normal(size=(2, 6, 4, 3, 4, 3))
    phases = np.exp(1j * rng.normal(size=(2, 12)))
    out = backend.array(np.zeros((2, 16, 16), complex))
    backend.kernels.slice_products.spin_pairs(backend.array(spinors), backend.array(phases), out)
    expected = np.einsum(
        "npx,pxbucv,pxaudv->nbcad", phases.reshape(2, 2, 6), spinors, spinors.conj(), optimize=True
    )
    assert np.abs(backend.host(out) - expected.reshape(2, 16, 16)).max() < 1e-12
    operands = backend.array(1j * spinors), backend.array(phases), out, backend.array(spinors)
    backend.kernels.slice_products.spin_pairs(*operands)
    assert np.abs(backend.host(out) - 1j * expected.reshape(2, 16, 16)).max() < 1e-12


def test_laplacian_step_on_free_links_is_the_second_difference(backend):
    lattice, time = Lattice((4, 6, 2, 4)), 3
    rng = np.random.default_rng(2)
    links = np.zeros((4, 2, lattice.half_volume, 3, 3), complex) + np.eye(3)
    field = rng.normal(size=(2, lattice.sites_per_slice, 12, 2)) + 0j
    step = backend.kernels.slice_products.laplacian_step
    found = backend.host(step(backend.array(links), backend.array(field), lattice, time, 0.1))
    first = time * lattice.sites_per_slice
    here = slice(first, first + lattice.sites_per_slice)
    expected = field * (1 - 0.6)
    for parity in (EVEN, ODD):
        for mu in range(3):
            for hop in (1, -1):
                expected[parity] += 0.1 * field[1 - parity][lattice.neighbour(parity, mu, hop)[here] - first]
    assert np.abs(found - expected).max() < 1e-14


def test_noise_on_subsets_and_with_signs(backend, random):
    eta, member = random(6, 3, 2), np.arange(18, dtype=np.int32).reshape(6, 3) % 4
    vectors, subsets = np.array([0, 1, 1]), np.array([3, 0, 1])
    found = backend.host(backend.kernels.random_numbers.masked(backend.array(eta), member, vectors, subsets))
    assert (found == np.where(member[..., None] == subsets, eta[:, :, vectors], 0)).all()
    signs = np.where(np.arange(24).reshape(6, 4) % 3, 1.0, -1.0)
    found = backend.host(backend.kernels.random_numbers.signed(backend.array(eta), signs))
    assert (found.reshape(6, 3, 2, 4) == eta[..., None] * signs[:, None, None]).all()


def test_largest_parts_of_a_site(backend):
    parts = np.random.default_rng(3).normal(size=(5, 3, 4, 2))
    found = backend.host(backend.kernels.short_numbers.largest_parts(backend.array(parts)))
    assert (found == np.abs(parts).max(axis=(1, 3))).all()


def test_sums_and_multiples_of_fields(backend, random):
    x, y, kernels = random(5, 3, 4), random(5, 3, 4), backend.kernels.block_blas
    field, out = backend.array(x), backend.array(y)
    kernels.add(out, field)
    assert (backend.host(out) == y + x).all()
    assert kernels.scale(field, 0.75, out) is out and (backend.host(out) == 0.75 * x).all()
    kernels.affine(out, 2.0, field, -0.5)
    assert np.allclose(backend.host(out), x, rtol=1e-6)
    refuses("one shape", kernels.add, out, field[:2])
    backend.kernels.lane_blas.lane_put_add(out, field[..., :2], np.array([3, 1]))
    assert np.allclose(backend.host(out)[..., [3, 1]], x[..., [3, 1]] + x[..., :2], rtol=1e-5)
    wide = backend.array(y.astype(complex))
    kernels.add(wide, field)
    assert (backend.host(wide) == y.astype(complex) + x).all()


def test_multiples_of_slices(backend, random):
    x, factor = random(3, 10, 3, 4), np.arange(12.0).reshape(3, 4)
    out = backend.array(np.zeros((3, 2, 10, 3, 4), x.dtype))
    backend.kernels.slice_products.slice_scale(backend.array(x), backend.array(factor), out[:, 1])
    assert np.allclose(backend.host(out)[:, 1], x * factor[:, None, None], rtol=1e-6)
    assert not backend.host(out)[:, 0].any()


def test_rayleigh_quotients_and_residuals_of_systems(backend, random):
    matrix, x = np.diag(np.arange(1.0, 9)), random(3, 8, 2)
    x /= np.linalg.norm(x, axis=1)[:, None]
    image = (matrix @ x).astype(x.dtype)
    quotients, norms2 = backend.kernels.batched_basis.rayleigh(backend.array(x), backend.array(image))
    expected = np.einsum("snb,n,snb->sb", x.conj(), np.diag(matrix), x).real
    assert np.allclose(backend.host(quotients), expected, rtol=1e-5)
    left = matrix @ x - expected[:, None] * x
    assert np.allclose(backend.host(norms2), (abs(left) ** 2).sum(axis=1), rtol=1e-4)

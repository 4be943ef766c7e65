"""Staggered operators against the dense matrix of their formula, free field, symmetries, MILC's spectrum."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, eigsh

from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.dirac.operator import affine
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import matrix_of
from support.refusals import refuses
from workflows.certification.fields import momenta, rotated, rough_links, rough_rotation, unit_links

LATTICE = Lattice((4, 2, 6, 4))


def dense_operator(links, mass):
    """2 m + D as a matrix on ``[parity, site, colour]``, link by link from the formula."""
    lattice = links.lattice
    matrix = np.zeros((2, lattice.half_volume, 3, 2, lattice.half_volume, 3), complex)
    for parity in (EVEN, ODD):
        for x, coordinates in enumerate(lattice.coordinates(parity)):
            matrix[parity, x, :, parity, x] += 2 * mass * np.eye(3)
            for mu in range(4):
                for hops, field in ((1, links.fat), (3, links.long)):
                    if field is None:
                        continue
                    step = hops * np.eye(4, dtype=int)[mu]
                    ahead, behind = lattice.site(coordinates + step), lattice.site(coordinates - step)
                    matrix[parity, x, :, 1 - parity, ahead] += field[mu, parity, x]
                    matrix[parity, x, :, 1 - parity, behind] -= field[mu, 1 - parity, behind].conj().T
    size = 6 * lattice.half_volume
    return matrix.reshape(size, size)


def random_field(seed, *shape, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def on_backend(links, xp):
    long = None if links.long is None else xp.asarray(links.long)
    return replace(links, fat=xp.asarray(links.fat), long=long)


@pytest.fixture
def links(build):
    return build(rough_links(311, LATTICE), LATTICE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 2e-6), (np.complex128, 1e-14)])
@pytest.mark.parametrize("rhs", [1, 3])
def test_full_operator_is_the_dense_matrix(links, backend, dtype, tolerance, rhs):
    operator = StaggeredOperator(StaggeredDslash(on_backend(links, backend.xp), dtype), mass=0.07)
    x = random_field(5, *operator.shape, rhs, dtype=dtype)
    result = as_numpy(operator.apply(backend.xp.asarray(x)))
    reference = (dense_operator(links, 0.07) @ x.reshape(-1, rhs)).reshape(x.shape)
    assert result.dtype == dtype
    assert np.linalg.norm(result - reference) < tolerance * np.linalg.norm(reference)


def test_antihermiticity(links):
    operator = StaggeredOperator(StaggeredDslash(links), mass=0.3)
    x, y = random_field(6, *operator.shape, 3), random_field(7, *operator.shape, 3)
    dslash = replace(operator, mass=0.0)
    assert np.vdot(y, dslash.apply(x)) == pytest.approx(-np.vdot(dslash.apply(y), x), rel=1e-12)


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_normal_operator_is_a_block_of_the_full_one(links, parity):
    """M^dag M = 4 m^2 - D^2 does not mix parities."""
    dslash = StaggeredDslash(links)
    full, normal = StaggeredOperator(dslash, 0.04), NormalOperator(dslash, 0.04, parity)
    x = np.zeros((*full.shape, 3), complex)
    x[parity] = random_field(8, *normal.shape, 3)
    product = full.apply(x)
    result = 4 * 0.04 * product - full.apply(product)  # M^dag = 4 m - M
    np.testing.assert_allclose(result[parity], normal.apply(x[parity]), atol=1e-13)
    np.testing.assert_allclose(result[1 - parity], 0, atol=1e-13)


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_squared_dslash_is_the_normal_operator_without_its_mass(links, backend, parity):
    dslash = StaggeredDslash(on_backend(links, backend.xp))
    squared, normal = SquaredDslash(dslash, parity), NormalOperator(dslash, 0.3, parity)
    host = random_field(21, *squared.shape, 3)
    x = backend.xp.asarray(host)
    full = np.zeros((2, *squared.shape, 3), complex)
    full[parity] = host
    matrix = dense_operator(links, 0.0)
    reference = -(matrix @ (matrix @ full.reshape(-1, 3))).reshape(full.shape)[parity]
    np.testing.assert_allclose(as_numpy(squared.apply(x)), reference, atol=1e-12)
    np.testing.assert_allclose(as_numpy(normal.apply(x)), reference + normal.shift * host, atol=1e-12)
    out, dots = backend.xp.empty_like(x), backend.xp.empty(3)
    for operator, a in ((squared, 0.7), (normal, 0.7 - 2 * normal.shift)):
        affine(operator, 0.7, -2.0, x, out)
        np.testing.assert_allclose(as_numpy(out), a * host - 2 * reference, atol=1e-12)
    assert normal.massless == squared and normal.shift == pytest.approx(0.36)
    squared.application(x, out, dots)()
    np.testing.assert_allclose(as_numpy(out), reference, atol=1e-12)
    np.testing.assert_allclose(as_numpy(dots), (host.conj() * reference).sum((0, 1)).real, rtol=1e-12)


def test_normal_operator_is_hermitian_and_above_its_mass(links):
    normal = NormalOperator(StaggeredDslash(links), 0.5)
    dense = matrix_of(normal.apply, normal.shape)
    assert abs(dense - dense.conj().T).max() < 1e-14
    assert np.linalg.eigvalsh(dense)[0] >= 4 * 0.5**2


def test_out_is_used_and_blocks_of_any_width_follow_each_other(links):
    normal = NormalOperator(StaggeredDslash(links), 0.2)
    wide = random_field(9, *normal.shape, 3)
    reference = normal.apply(wide)
    for columns in (slice(0, 1), slice(0, 3), slice(2, 3)):
        x = np.ascontiguousarray(wide[..., columns])
        out = np.full_like(x, np.nan)
        assert normal.apply(x, out) is out
        np.testing.assert_allclose(out, reference[..., columns], atol=1e-13)


def test_precisions_are_converted_once(links):
    normal = NormalOperator(StaggeredDslash(links), 0.2)
    single = normal.astype(np.complex64)
    assert single.dtype == np.complex64 and normal.astype(np.complex128) is normal
    assert single.dslash is normal.astype("complex64").dslash
    x = random_field(10, *normal.shape, 3)
    np.testing.assert_allclose(single.apply(x.astype(np.complex64)), normal.apply(x), atol=1e-4)


def test_the_memory_of_an_operator_is_free_as_soon_as_nobody_uses_it(links):
    dslash = StaggeredDslash(links)
    dslash.astype(np.complex64)
    still_there = weakref.ref(dslash)
    del dslash
    assert still_there() is None


def test_gauge_covariance(build):
    """D of U_mu(x) -> G(x) U_mu(x) G(x+mu)^dag is G D G^dag."""
    thin = rough_links(17, LATTICE)
    g = rough_rotation(18, LATTICE)
    both = (thin, rotated(thin, g, LATTICE))
    plain, transformed = (StaggeredOperator(StaggeredDslash(build(u, LATTICE)), 0.1) for u in both)
    x = random_field(19, *plain.shape, 3)
    np.testing.assert_allclose(transformed.apply(g @ x), g @ plain.apply(x), atol=1e-12)


@pytest.mark.parametrize("boundary", ["periodic", "antiperiodic"])
@pytest.mark.parametrize(("improved", "weights"), [(False, (1, 0)), (True, (9 / 8, -1 / 24))])
def test_free_spectrum(boundary, improved, weights):
    """-D^2 of unit links: sum_mu [2 fat sin p_mu + 2 long sin 3 p_mu]^2 of each momentum and colour."""
    lattice = Lattice((4, 4, 2, 6))
    unit = unit_links(lattice, np)
    links = (
        hisq_links(unit, lattice, boundary=boundary, naik_epsilon=0.0)
        if improved
        else naive_links(unit, lattice, boundary=boundary)
    )
    p = momenta(lattice, boundary)
    squares = ((2 * weights[0] * np.sin(p) + 2 * weights[1] * np.sin(3 * p)) ** 2).sum(axis=1)
    mass = 0.25
    operator = StaggeredOperator(StaggeredDslash(links), mass)
    dense = dense_operator(links, mass)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(dense.conj().T @ dense),
        np.sort(np.tile(squares, 3)) + 4 * mass**2,
        atol=1e-12,
    )
    x = random_field(20, *operator.shape, 1)
    np.testing.assert_allclose(operator.apply(x).ravel(), dense @ x.ravel(), atol=1e-13)


@pytest.mark.parametrize("mass", [0.0, -0.01, float("nan")])
def test_mass_must_be_positive(links, mass):
    operator = StaggeredOperator(StaggeredDslash(links), mass)
    refuses(f"mass.*positive, got {mass}", NormalOperator, operator.dslash, mass)


def test_precision_must_be_complex(links):
    refuses("complex64 or complex128, got float64", StaggeredDslash, links, np.float64)


def test_lowest_eigenvalues_are_milcs(reference_data, expected):
    entry = expected["hisq:eigs_l8888"]
    field = read_gauge(reference_data / entry["files"][0])
    links = hisq_links(
        field.links, field.lattice, boundary="antiperiodic", naik_epsilon=entry["values"]["eps"]
    )
    mass = 0.01
    normal = NormalOperator(StaggeredDslash(links), mass)
    size = int(np.prod(normal.shape))
    matrix = LinearOperator(
        (size, size), lambda v: normal.apply(v.reshape(*normal.shape, 1)).ravel(), dtype=complex
    )
    reference = np.array(entry["values"]["eig"])
    start = random_field(23, size)
    values = eigsh(matrix, len(reference), which="SA", ncv=80, tol=1e-9, v0=start, return_eigenvectors=False)
    np.testing.assert_allclose(np.sort(values) - 4 * mass**2, reference, rtol=entry["rtol"])


def test_operations_are_products_of_matrices_and_their_sum(links) -> None:
    """3 x 3 complex: 9 products of 6 operations and 6 sums of 2; a sum of colour vectors: 3 of 2."""
    neighbours = 16 if links.long is not None else 8
    each = neighbours * (9 * 6 + 6 * 2) + (neighbours - 1) * 3 * 2
    assert StaggeredDslash(links).flops == LATTICE.half_volume * each

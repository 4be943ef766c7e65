"""Restriction and prolongation against the dense matrix P; their misuse."""

import numpy as np
import pytest
from widths import widths

from stages.lqcd.kernels import aggregation
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("multigrid_precision")

COUNT, PER_AGGREGATE, N, VECTORS, SITES = 5, 4, 3, 7, 23


def packed_vectors(backend, random, vectors):
    """Vectors, and a random choice of sites: some belong to no aggregate."""
    sites = np.random.default_rng(3).permutation(SITES)[: COUNT * PER_AGGREGATE].astype(np.int32)
    sites = sites.reshape(COUNT, PER_AGGREGATE)
    packed = backend.kernels.aggregation.pack(backend.array(vectors), backend.array(sites), SITES)
    return packed, sites


def matrix(vectors, sites):
    """P ``[site, chirality, n, aggregate, chirality, vector]`` as a matrix."""
    P = np.zeros((SITES, 2, N, COUNT, 2, VECTORS), complex)
    for aggregate, row in enumerate(sites):
        blocks = vectors[aggregate].reshape(2, PER_AGGREGATE, N, VECTORS)
        for place, site in enumerate(row):
            for c in range(2):
                P[site, c, :, aggregate, c] = blocks[c, place]
    return P.reshape(SITES * 2 * N, COUNT * 2 * VECTORS)


@pytest.mark.parametrize("rhs", widths((5,), (1, 16)))
def test_transfers_are_products_with_the_dense_matrix(backend, random, tolerance, rhs):
    vectors = random(COUNT, 2, PER_AGGREGATE * N, VECTORS)
    packed, sites = packed_vectors(backend, random, vectors)
    P = matrix(vectors, sites)
    x, coarse = random(SITES, 2 * N, rhs), random(COUNT, 2 * VECTORS, rhs)
    out, kernels = backend.array(np.full_like(coarse, np.nan)), backend.kernels.aggregation
    assert kernels.restrict(packed, backend.array(x), out) is out
    expected = (P.conj().T @ x.reshape(-1, rhs)).reshape(coarse.shape)
    assert np.abs(backend.host(out) - expected).max() < 10 * tolerance * np.abs(expected).max()
    fine = backend.array(x)
    assert kernels.add_prolonged(packed, backend.array(coarse), fine) is fine
    expected = x + (P @ coarse.reshape(-1, rhs)).reshape(x.shape)
    assert np.abs(backend.host(fine) - expected).max() < 10 * tolerance * np.abs(expected).max()


def test_what_products_read_gives_the_same_bits(backend, random):
    """Where that is another order of the vectors, the vectors are not kept."""
    packed, _ = packed_vectors(backend, random, random(COUNT, 2, PER_AGGREGATE * N, VECTORS))
    kernels, x, coarse = backend.kernels.aggregation, random(SITES, 2 * N, 5), random(COUNT, 2 * VECTORS, 5)
    results = []
    for each in (packed, kernels.for_products(packed)):
        restricted = kernels.restrict(each, backend.array(x), backend.array(np.full_like(coarse, np.nan)))
        prolonged = kernels.add_prolonged(each, backend.array(coarse), backend.array(x))
        results.append((backend.host(restricted), backend.host(prolonged)))
    for first, second in zip(*results, strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize(("count_of", "rhs"), widths([(VECTORS, 5)], [(3, 19), (3, 1)]))
def test_many_aggregates(backend, random, tolerance, count_of, rhs):
    """So many that a GPU gives each fewer threads."""
    count = 1100
    vectors, x = random(count, 2, 2 * N, count_of), random(2 * count, 2 * N, rhs)
    sites = np.random.default_rng(5).permutation(2 * count).astype(np.int32).reshape(count, 2)
    packed = backend.kernels.aggregation.pack(backend.array(vectors), backend.array(sites), 2 * count)
    out = backend.array(np.empty((count, 2 * count_of, rhs), x.dtype))
    rows = x.reshape(2 * count, 2, N, rhs)[sites].swapaxes(1, 2).reshape(count, 2, 2 * N, rhs)
    expected = (vectors.conj().swapaxes(-1, -2) @ rows).reshape(out.shape)
    found = backend.host(backend.kernels.aggregation.restrict(packed, backend.array(x), out))
    assert np.abs(found - expected).max() < 10 * tolerance * np.abs(expected).max()


@pytest.mark.gpu
@pytest.mark.parametrize("vectors", [24, 32, 41, 64])
@pytest.mark.parametrize("rhs", [17, 24, 32, 48, 50, 64])
def test_many_right_hand_sides(rhs, vectors):
    """More than a GPU's tile has, in all numbers of tiles: the same as one tile after the other."""
    cupy = pytest.importorskip("cupy")
    rng = cupy.random.default_rng(7)

    def draw(*shape):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)

    sites = cupy.arange(SITES // 4 * 4, dtype=np.int32)[::-1].reshape(-1, 4).copy()
    packed = aggregation.pack(draw(len(sites), 2, 4 * 6, vectors), sites, SITES)
    x, coarse = draw(SITES, 12, rhs), draw(len(sites), 2 * vectors, rhs)
    found = aggregation.restrict(packed, x, cupy.empty_like(coarse))
    prolonged = aggregation.add_prolonged(packed, coarse, x.copy())
    for first in range(0, rhs, 16):
        some = slice(first, first + 16)
        own, whole = x[..., some].copy(), coarse[..., some].copy()
        expected = aggregation.restrict(packed, own, cupy.empty_like(whole))
        assert float(abs(found[..., some] - expected).max()) <= 2e-5 * float(abs(expected).max())
        expected = aggregation.add_prolonged(packed, whole, own)
        assert float(abs(prolonged[..., some] - expected).max()) <= 2e-5 * float(abs(expected).max())


def test_part_of_the_rows(backend, random, tolerance):
    """Vectors may be leading rows of a larger array, as those of the even sites are."""
    whole = random(COUNT, 2, 2 * PER_AGGREGATE * N, VECTORS)
    part = backend.array(whole)[:, :, : PER_AGGREGATE * N]
    sites = np.arange(COUNT * PER_AGGREGATE, dtype=np.int32).reshape(COUNT, PER_AGGREGATE)
    kernels, x = backend.kernels.aggregation, random(SITES, 2 * N, 5)
    results = []
    for vectors in (part, backend.array(np.ascontiguousarray(whole[:, :, : PER_AGGREGATE * N]))):
        packed = kernels.pack(vectors, backend.array(sites), SITES)
        out = backend.array(np.empty((COUNT, 2 * VECTORS, 5), x.dtype))
        results.append(backend.host(kernels.restrict(packed, backend.array(x), out)))
        results.append(backend.host(kernels.add_prolonged(packed, out, backend.array(x))))
    assert np.abs(results[0] - results[2]).max() < tolerance * np.abs(results[0]).max()
    assert np.abs(results[1] - results[3]).max() < tolerance * np.abs(results[1]).max()


@pytest.mark.parametrize(
    "shape",
    [
        (5, 2, 12, 7),
        (3, 2, 130, 24),
        (2, 2, 9, 1),
        (2, 2, 70, 32),
        (1, 64),
        (5, 2, 70, 41),
        (0, 2, 5, 3),
        (2, 3, 0),
    ],
)
def test_gram_matrices_in_double(backend, random, shape):
    """Of the numbers as they are, to the rounding of double, also in single precision."""
    vectors = random(*shape)
    found = backend.host(backend.kernels.aggregation.gram(backend.array(vectors)))
    wide = vectors.astype(complex)
    exact = wide.conj().swapaxes(-1, -2) @ wide
    assert found.dtype == np.complex128 and found.shape == exact.shape
    assert np.abs(found - exact).max(initial=0) <= 4e-15 * np.abs(exact).max(initial=0)


def test_misuse(backend, random):
    kernels = backend.kernels.aggregation
    vectors = random(COUNT, 2, PER_AGGREGATE * N, VECTORS)
    packed, sites = packed_vectors(backend, random, vectors)
    refuses("2 chiralities", kernels.pack, backend.array(vectors[:, 0]), backend.array(sites), SITES)
    refuses("C-contiguous", kernels.gram, backend.array(vectors)[:, :, ::2])
    refuses("between 0 and 9", kernels.pack, backend.array(vectors), backend.array(sites), 10)
    refuses("do not fit", kernels.pack, backend.array(vectors[:-1]), backend.array(sites), SITES)
    refuses("int32", kernels.pack, backend.array(vectors), backend.array(sites.astype(np.int64)), SITES)
    x, out = backend.array(random(SITES, 2 * N, 2)), backend.array(random(COUNT, 2 * VECTORS, 3))
    refuses("the coarse field", kernels.restrict, packed, x, out)
    refuses("the fine field", kernels.add_prolonged, packed, out, backend.array(random(SITES - 1, 2 * N, 3)))

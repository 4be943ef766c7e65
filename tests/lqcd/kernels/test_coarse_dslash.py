"""Products with coarse links against the dense matrix; their misuse."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels import aggregation, coarse_dslash
from stages.lqcd.kernels.reference import coarse_dslash as reference
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("multigrid_precision")

SITES, INPUTS, DIRECTIONS, N, GRID = 7, 5, 3, 10, 6


def case(backend, random):
    links = random(SITES, DIRECTIONS, N, N)
    neighbours = np.random.default_rng(3).integers(0, INPUTS, (SITES, DIRECTIONS)).astype(np.int32)
    neighbours[0] = INPUTS - 1  # all from one site
    packed = backend.kernels.coarse_dslash.pack(backend.array(links), backend.array(neighbours))
    return packed, links, neighbours


def product(links, neighbours, x, n=N):
    total = np.zeros((SITES, n, x.shape[2]), complex)
    for site in range(SITES):
        for d in range(DIRECTIONS):
            total[site] += links[site, d].astype(complex) @ x[neighbours[site, d]]
    return total


@pytest.mark.parametrize("rhs", widths((1, 4), (16,)))
def test_sum_over_neighbours(backend, random, tolerance, rhs):
    packed, links, neighbours = case(backend, random)
    x, diagonal = random(INPUTS, N, rhs), random(SITES, N, rhs)
    kernel, total = backend.kernels.coarse_dslash.coarse_dslash, product(links, neighbours, x)
    out = backend.array(np.full_like(diagonal, np.nan))
    assert kernel(packed, backend.array(x), out) is out
    assert np.abs(backend.host(out) - total).max() < 10 * tolerance * np.abs(total).max()
    expected = 0.3 * diagonal - 1.7 * total
    added = backend.array(diagonal)
    kernel(packed, backend.array(x), out, diagonal=added, a=0.3, b=-1.7)
    assert np.abs(backend.host(out) - expected).max() < 10 * tolerance * np.abs(expected).max()
    kernel(packed, backend.array(x), added, diagonal=added, a=0.3, b=-1.7)
    assert np.array_equal(backend.host(added), backend.host(out))


@pytest.mark.parametrize("dtype", [np.dtype(np.complex64)], ids=str)
@pytest.mark.parametrize(
    ("n", "rhs"), widths([(N, 1), (N, 4)], [(48, 4), (20, 5), (16, 12), (48, 16), (64, 33)])
)
def test_links_of_sixteen_bits(backend, random, n, rhs):
    """Three digits of the product in every group of rows, large or small; as their emulation says."""
    links, x, diagonal = random(SITES, DIRECTIONS, n, n), random(INPUTS, n, rhs), random(SITES, n, rhs)
    groups = [slice(first, first + 16) for first in range(0, n, 16)]
    for group, factor in zip(groups, (1e-6, 1.0, 1e5, 1e-3), strict=False):
        links[:, :, group] *= np.float32(factor)
    neighbours = np.random.default_rng(3).integers(0, INPUTS, (SITES, DIRECTIONS)).astype(np.int32)
    kernels, exact = backend.kernels.coarse_dslash, product(links, neighbours, x, n)
    packed = kernels.pack_half(backend.array(links), backend.array(neighbours))
    out = backend.array(np.full_like(diagonal, np.nan))
    assert kernels.coarse_dslash(packed, backend.array(x), out) is out
    found, emulated = backend.host(out).copy(), np.empty_like(diagonal)
    reference.coarse_dslash(reference.pack_half(links, neighbours), x, emulated)
    for group in groups:
        size = np.linalg.norm(exact[:, group])
        assert np.linalg.norm(found[:, group] - exact[:, group]) <= 5e-4 * size
        assert 1e-5 * size <= np.linalg.norm(emulated[:, group] - exact[:, group]) <= 5e-4 * size
        if backend.xp is not np and rhs > 4:  # a few are multiplied in single precision
            assert np.linalg.norm(found[:, group] - emulated[:, group]) <= 2e-6 * size
    kernels.coarse_dslash(packed, backend.array(x), out, diagonal=backend.array(diagonal), a=0.3, b=-1.7)
    assert np.allclose(backend.host(out), 0.3 * diagonal - 1.7 * found, rtol=1e-5, atol=1e-6)


def test_misuse(backend, random):
    packed, links, neighbours = case(backend, random)
    kernels, array = backend.kernels.coarse_dslash, backend.array
    refuses("directions, n, n", kernels.pack, array(links[0]), array(neighbours))
    refuses("neighbours", kernels.pack, array(links), array(neighbours[:, :2].copy()))
    x, out = array(random(INPUTS, N, 2)), array(random(SITES, N, 2))
    refuses("at least 5 sites", kernels.coarse_dslash, packed, x[:4], out)
    refuses("not be its input", kernels.coarse_dslash, packed, out, out)
    refuses("diagonal", kernels.coarse_dslash, packed, x, out, diagonal=x)


@pytest.mark.gpu
def test_double_precision_is_refused_on_a_gpu():
    cupy = pytest.importorskip("cupy")
    links, neighbours = (
        cupy.zeros((SITES, DIRECTIONS, N, N), complex),
        cupy.zeros((SITES, DIRECTIONS), np.int32),
    )
    with pytest.raises(InputError, match="complex64 links"):
        coarse_dslash.pack(links, neighbours)
    with pytest.raises(InputError, match="complex64 vectors"):
        aggregation.gram(cupy.zeros((2, 2, 9, 3), complex))
    with pytest.raises(InputError, match="at most 64 vectors"):
        aggregation.gram(cupy.zeros((1, 128), np.complex64))


@pytest.mark.parametrize("n", [2, 10, 48, 66])
def test_backward_links_and_local_matrices(backend, random, tolerance, n):
    diagonal, links = random(GRID, n, n), random(GRID, 8, n, n)
    inside = [random(GRID, n, n) for _ in range(4)]
    behind = np.random.default_rng(5).integers(0, GRID, (GRID, 4)).astype(np.int32)
    gamma5 = np.diag(np.repeat([1.0, -1.0], n // 2))
    expected, local = links.astype(complex), diagonal.astype(complex)
    for site in range(GRID):
        for mu in range(4):
            expected[site, 2 * mu + 1] = gamma5 @ links[behind[site, mu], 2 * mu].conj().T @ gamma5
            local[site] += inside[mu][site] + gamma5 @ inside[mu][site].conj().T @ gamma5
    arrays = [backend.array(each) for each in (diagonal, *inside, links, behind)]
    backend.kernels.coarse_dslash.add_backward(arrays[0], arrays[1:5], *arrays[5:])
    assert np.array_equal(backend.host(arrays[5]), expected.astype(links.dtype))
    assert np.abs(backend.host(arrays[0]) - local).max() <= tolerance * np.abs(local).max()


def test_misuse_of_backward_links(backend, random):
    arrays = [backend.array(random(GRID, 4, 4)) for _ in range(5)]
    links, behind = backend.array(random(GRID, 8, 4, 4)), backend.array(np.zeros((GRID, 4), np.int32))
    add = backend.kernels.coarse_dslash.add_backward
    refuses("behind must be", add, arrays[0], arrays[1:], links, behind[:, :3])
    refuses(r"inside\[2\] must be", add, arrays[0], [*arrays[1:3], links, arrays[4]], links, behind)

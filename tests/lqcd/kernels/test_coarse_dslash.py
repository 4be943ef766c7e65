"""Products with coarse links against the dense matrix; their misuse."""

from __future__ import annotations

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.kernels import aggregation, coarse_dslash

pytestmark = pytest.mark.usefixtures("multigrid_precision")

SITES, INPUTS, DIRECTIONS, N = 7, 5, 3, 10


def case(backend, random):
    links = random(SITES, DIRECTIONS, N, N)
    neighbours = np.random.default_rng(3).integers(0, INPUTS, (SITES, DIRECTIONS)).astype(np.int32)
    neighbours[0] = INPUTS - 1  # all from one site
    packed = backend.kernels.coarse_dslash.pack(backend.array(links), backend.array(neighbours))
    return packed, links, neighbours


def product(links, neighbours, x):
    total = np.zeros((SITES, N, x.shape[2]), complex)
    for site in range(SITES):
        for d in range(DIRECTIONS):
            total[site] += links[site, d].astype(complex) @ x[neighbours[site, d]]
    return total


@pytest.mark.parametrize("rhs", [1, 16])
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


def test_misuse(backend, random):
    packed, links, neighbours = case(backend, random)
    kernels, array = backend.kernels.coarse_dslash, backend.array
    with pytest.raises(InputError, match="directions, n, n"):
        kernels.pack(array(links[0]), array(neighbours))
    with pytest.raises(InputError, match="neighbours"):
        kernels.pack(array(links), array(neighbours[:, :2].copy()))
    x, out = array(random(INPUTS, N, 2)), array(random(SITES, N, 2))
    with pytest.raises(InputError, match="at least 5 sites"):
        kernels.coarse_dslash(packed, x[:4], out)
    with pytest.raises(InputError, match="not be its input"):
        kernels.coarse_dslash(packed, out, out)
    with pytest.raises(InputError, match="diagonal"):
        kernels.coarse_dslash(packed, x, out, diagonal=x)


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

"""Galerkin products of the Wilson operator by parts against those through fields."""

from functools import partial

import numpy as np
import pytest

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels import wilson_galerkin
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.aggregates import (
    Aggregates,
    Prolongation,
    prolongation,
    random_on_grid,
    zeros_on_grid,
)
from stages.lqcd.multigrid.coarse_operator import put_products
from stages.lqcd.multigrid.wilson import FineWilson

CASES = [
    ((8, 8, 8, 8), (4, 4, 4, 4), 24, 1.0),
    ((8, 4, 6, 4), (4, 2, 3, 2), 16, 1.0),
    ((8, 4, 4, 4), (8, 4, 2, 1), 32, 0.0),
    ((4, 4, 4, 8), (2, 2, 2, 2), 8, 1.0),
]
"""Lattice, aggregates, vectors, csw: aggregates as long as the lattice, of one slice, of an odd extent."""


def operator(xp, extents, csw):
    lattice = Lattice(extents)
    rng = np.random.default_rng(1409)
    shape = (4, 2, lattice.half_volume, 3, 3)
    unitary = np.linalg.qr(rng.normal(size=shape) + 1j * rng.normal(size=shape))[0]
    su3 = unitary / (np.linalg.det(unitary) ** (1 / 3))[..., None, None]
    links = wilson_links(xp.asarray(su3), lattice, boundary="antiperiodic", csw=csw)
    return FineWilson(WilsonOperator(WilsonDslash(links, np.complex64), -0.3))


@pytest.mark.gpu
@pytest.mark.parametrize(("extents", "blocks", "count", "csw"), CASES)
def test_parts_of_the_coarse_operator(extents, blocks, count, csw):
    """Every part is that through fields, but for factors rounded to 11 bits."""
    cupy = pytest.importorskip("cupy")
    A = operator(cupy, extents, csw)
    vectors = random_on_grid(A.grid, A.components, count, A.links, 31, 0)
    P: Prolongation = prolongation(Aggregates(A.grid, blocks), vectors)[0]
    assert wilson_galerkin.takes(P.vectors, P.aggregates.volume)
    parts = []
    for put in (A.put_products, partial(put_products, A)):
        size = (2 * count, 2 * count)
        diagonal, *inside = (zeros_on_grid(P.aggregates.coarse, P.vectors, size) for _ in range(5))
        links = zeros_on_grid(P.aggregates.coarse, P.vectors, (8, *size))
        put(P, diagonal, inside, links)
        parts.append([cupy.asnumpy(each) for each in (diagonal, *inside, links)])
    for found, expected in zip(*parts, strict=True):
        assert np.linalg.norm(found - expected) <= 5e-4 * np.linalg.norm(expected)
    whole = A.galerkin(P)
    assert np.array_equal(cupy.asnumpy(whole.links[:, ::2]), parts[0][5][:, ::2])


def test_few_kernels_take_unusual_vectors():
    """Elsewhere products go through fields, as on a CPU."""
    vectors = np.zeros((1, 2, 12, 24), np.complex64)
    assert not wilson_galerkin.takes(vectors, 256)
    cuda = pytest.importorskip("stages.lqcd.kernels.cuda.wilson_galerkin")
    assert [cuda.takes(k, 256) for k in (8, 24, 32, 20, 40)] == [True, True, True, False, False]
    assert not cuda.takes(24, 2048)

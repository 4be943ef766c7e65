"""Grids, aggregates, transfers and coarse operators against dense matrices, on grids of every kind."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.aggregates import Aggregates, Grid, prolongation
from stages.lqcd.multigrid.coarse_operator import EvenOddOperator, coarse_operator
from stages.lqcd.multigrid.hierarchy import coarsest
from stages.lqcd.multigrid.wilson import FineWilson
from support.refusals import refuses

DIVISIONS = [
    ((4, 4, 4, 4), (2, 2, 2, 2), (1, 2, 1, 2)),
    ((4, 4, 4, 4), (2, 4, 1, 2), (1, 1, 4, 2)),
    ((2, 4, 4, 2), (2, 4, 2, 1), (1, 1, 2, 2)),
    ((6, 2, 4, 2), (2, 1, 2, 2), (3, 2, 1, 1)),
    ((6, 6, 2, 2), (3, 3, 1, 1), (2, 1, 2, 1)),
]
"""Lattice, aggregates, aggregates of the coarse grid: odd extents, extents of 1 and 2, odd volumes."""


def matrix_of(P):
    """P as a matrix, from its columns; the order of the coarse components is that of a coarse field."""
    aggregates, k = P.aggregates, P.vector_count
    sites, per_aggregate = aggregates.sites.shape
    n = P.vectors.shape[2] // per_aggregate
    matrix = np.zeros((aggregates.fine.sites, 2, n, sites, 2, k), complex)
    for a in range(sites):
        for c in range(2):
            blocks = P.vectors[a, c].reshape(per_aggregate, n, k)
            matrix[aggregates.sites[a], c, :, a, c] = blocks
    return matrix.reshape(-1, sites * 2 * k)


def two_levels(wilson, draw, division):
    extents, first, second = division
    fine = FineWilson(wilson(extents))
    P, _ = prolongation(Aggregates(fine.grid, first), draw(fine.grid.sites, 12, 3))
    A = fine.galerkin(P)
    Q, _ = prolongation(Aggregates(A.grid, second), draw(A.grid.sites, 6, 2))
    return fine, P, A, Q, A.galerkin(Q)


def test_sites_are_those_of_the_lattice():
    for extents in ((4, 4, 4, 4), (2, 6, 4, 2)):
        lattice, grid = Lattice(extents), Grid(extents)
        for parity in range(2):
            half = slice(parity * lattice.half_volume, (parity + 1) * lattice.half_volume)
            assert np.array_equal(grid.coordinates[half], lattice.coordinates(parity))
            for mu in range(4):
                there = (1 - parity) * lattice.half_volume
                assert np.array_equal(grid.neighbours[half, 2 * mu], there + lattice.neighbour(parity, mu, 1))


@pytest.mark.parametrize("extents", [(3, 1, 2, 5), (2, 2, 2, 2), (1, 1, 1, 1)], ids=str)
def test_neighbours_wrap_around(extents):
    grid = Grid(extents)
    x, y, z, t = grid.coordinates.T
    assert np.array_equal(grid.numbers[t, z, y, x], np.arange(grid.sites))
    for d in range(8):
        step = np.zeros(4, int)
        step[d // 2] = 1 - 2 * (d % 2)
        moved = (grid.coordinates + step) % extents
        assert np.array_equal(grid.coordinates[grid.neighbours[:, d]], moved)


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_prolongation_is_orthonormal_and_keeps_chirality(wilson, draw, division):
    _fine, P, _A, Q, _ = two_levels(wilson, draw, division)
    for T, components in ((P, 12), (Q, 6)):
        matrix, coarse = matrix_of(T), T.aggregates.coarse
        assert np.abs(matrix.conj().T @ matrix - np.eye(matrix.shape[1])).max() < 1e-13
        x, y = draw(coarse.sites, 2 * T.vector_count, 2), draw(T.aggregates.fine.sites, components, 2)
        out = np.zeros_like(y)
        whole = T.on_all_sites()
        whole.add_prolonged(x, out)
        assert np.abs(out.reshape(-1, 2) - matrix @ x.reshape(-1, 2)).max() < 1e-13 * 10
        assert np.abs(whole.restrict(y).reshape(-1, 2) - matrix.conj().T @ y.reshape(-1, 2)).max() < 1e-12
        x[:, T.vector_count :] = 0
        out[...] = 0
        whole.add_prolonged(x, out)
        assert np.abs(out[:, components // 2 :]).max() == 0


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_even_sites_alone(wilson, draw, division):
    fine, P, *_ = two_levels(wilson, draw, division)
    half = fine.grid.sites // 2
    y = draw(fine.grid.sites, 12, 2)
    y[half:] = 0
    even = np.ascontiguousarray(y[:half])
    whole, cycles = P.on_all_sites(), P.for_cycles()
    assert np.abs(cycles.restrict(even) - whole.restrict(y)).max() < 1e-13 * 10
    x = draw(P.aggregates.coarse.sites, 6, 2)
    whole.add_prolonged(x, y)
    cycles.add_prolonged(x, even)
    assert np.abs(even - y[:half]).max() < 1e-13


@pytest.mark.parametrize("passes", [1, 2])
def test_prolongation_spans_the_vectors(wilson, draw, passes):
    """P P^H leaves the near-null vectors, and each of their chiralities, as they are."""
    fine = FineWilson(wilson())
    vectors = draw(fine.grid.sites, 12, 3)
    P, restricted = prolongation(Aggregates(fine.grid, (2, 2, 2, 4)), vectors, passes)
    whole = P.on_all_sites()
    assert np.abs(restricted() - whole.restrict(vectors)).max() < 1e-12
    for part in (slice(None), slice(6)):
        field = np.zeros_like(vectors)
        field[:, part] = vectors[:, part]
        back = np.zeros_like(vectors)
        whole.add_prolonged(whole.restrict(field), back)
        assert np.abs(back - field).max() < 1e-12


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_galerkin_operator_is_the_dense_product(wilson, draw, dense, division):
    fine, P, A, Q, B = two_levels(wilson, draw, division)
    for above, T, coarse in ((fine, P, A), (A, Q, B)):
        matrix = matrix_of(T)
        columns = matrix.reshape(above.grid.sites, above.components, -1)
        product = matrix.conj().T @ above.apply(columns).reshape(matrix.shape)
        found = dense(coarse.apply, coarse.shape)
        assert np.abs(found - product).max() < 1e-12
        signs = np.tile(np.repeat([1, -1], T.vector_count), coarse.grid.sites)
        assert np.abs(signs[:, None] * found * signs - found.conj().T).max() < 1e-12


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_systems_solve_the_operator(wilson, draw, dense, division):
    """Even-odd or full, with the dense inverse of the system: reconstruct(S^-1 prepare(b)) = A^-1 b."""
    _fine, _P, A, _Q, B = two_levels(wilson, draw, division)
    for operator in (A, B):
        assert isinstance(operator, EvenOddOperator) == operator.grid.even_odd == operator.even
        matrix = dense(operator.operator.apply, operator.operator.shape)
        assert np.abs(matrix - operator.dense()).max() < 1e-11
        b = draw(*operator.shape, 2)
        rhs, kept = operator.prepare(b.copy())
        x = np.linalg.solve(matrix, rhs.reshape(len(matrix), -1)).reshape(rhs.shape)
        assert np.abs(operator.apply(operator.reconstruct(x, kept)) - b).max() < 1e-10


def test_defect_is_the_residual_of_the_operator(wilson, draw):
    fine = FineWilson(wilson())
    A = fine.galerkin(prolongation(Aggregates(fine.grid, (2, 2, 2, 2)), draw(fine.grid.sites, 12, 3))[0])
    for operator in (fine, A):
        b = draw(operator.grid.sites, operator.components, 2)
        rhs, kept = operator.prepare(b.copy())
        x = draw(*rhs.shape)
        left = b - operator.apply(operator.reconstruct(x, kept))
        half = len(x)
        expected = operator.defect(rhs - operator.operator.apply(x))
        assert np.abs(left[:half] - expected).max() < 1e-11
        assert np.abs(left[half:]).max() < 1e-11


def test_extended_fields_vanish_under_the_operator_on_the_odd_sites(wilson, draw):
    fine = FineWilson(wilson())
    A = fine.galerkin(prolongation(Aggregates(fine.grid, (2, 2, 2, 2)), draw(fine.grid.sites, 12, 3))[0])
    for operator in (fine, A):
        x = draw(operator.grid.sites, operator.components, 2)
        half, kept = len(x) // 2, x.copy()
        operator.extend(x)
        assert np.array_equal(x[:half], kept[:half])
        assert np.abs(operator.apply(x)[half:]).max() < 1e-11


def test_bad_aggregates(draw):
    grid = Grid((4, 4, 4, 6))
    refuses("do not divide the 6 sites of the 4x4x4x6 grid in t", Aggregates, grid, (2, 2, 2, 4))
    refuses("at least 1", Aggregates, grid, (2, 2, 2, 0))
    refuses("at least 1", Grid, (4, 4, 0, 4))
    with pytest.raises(InputError, match="fewer than the 13 near-null vectors"):
        prolongation(Aggregates(grid, (1, 1, 1, 2)), draw(grid.sites, 12, 13))
    twins = np.repeat(draw(grid.sites, 12, 1), 2, axis=2)
    refuses("linearly dependent", prolongation, Aggregates(grid, (2, 2, 2, 2)), twins)


@pytest.mark.parametrize("extents", [(2, 2, 2, 2), (1, 2, 2, 2)])
def test_singular_coarse_operators(extents):
    """Refused where a site has no inverse; with a singular matrix a solve is NaN, and so is its rate."""
    grid = Grid(extents)
    nothing = np.zeros((grid.sites, 4, 4), np.complex64)
    A = coarse_operator(grid, nothing, np.zeros((grid.sites, 8, 4, 4), np.complex64))
    b = np.ones((grid.sites, 4, 1), np.complex64)
    if grid.even_odd:
        refuses("local matrix of a coarse operator is singular", A.prepare, b)
        return
    assert np.isnan(coarsest(A, 5, 0.1).solve(b)).all()

"""Coarse-grid deflation of the staggered normal operator, against dense matrices and true residuals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.lattice.geometry import ODD, Lattice
from stages.lqcd.multigrid.aggregates import Aggregates, Grid, prolongation
from stages.lqcd.multigrid.coarse_deflation import CoarseDeflation, CoarseSpace
from stages.lqcd.multigrid.coarse_normal import coarse_offsets, coloured, galerkin_normal, neighbours_at
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.solution import SolveStatus
from support.matrices import matrix_of, random_su3

SMALL = CoarseDeflation((2, 2, 2, 2), vectors=6, degree=24, edge=0.05)
MASSES = 0.05, 0.005, 0.0005


@pytest.fixture(autouse=True)
def by_expressions() -> Iterator[None]:
    """No kernel is compiled for so few products."""
    with kernels_of("reference"):
        yield


@cache
def dslash(
    extents: tuple[int, ...] = (4, 4, 4, 4), kind: str = "rough", naive: bool = False
) -> StaggeredDslash:
    lattice, rng = Lattice(extents), np.random.default_rng(977)  # type: ignore[arg-type]
    shape = (4, 2, lattice.half_volume)
    thin = random_su3(rng, *shape, size={"rough": 0.3, "hot": 9.0}.get(kind, 0.0))
    boundary = "periodic" if kind == "periodic" else "antiperiodic"
    if naive:
        return StaggeredDslash(naive_links(thin, lattice, boundary=boundary))
    return StaggeredDslash(hisq_links(thin, lattice, boundary=boundary, naik_epsilon=0.0))


@cache
def small_space(kind: str = "rough") -> CoarseSpace:
    """Of a periodic free field with its 24 zero modes: fewer vectors do not hold them."""
    zero_modes = replace(SMALL, aggregate=(4, 4, 4, 4), vectors=24)
    return (zero_modes if kind == "periodic" else SMALL).setup(dslash(kind=kind))


def block(A: NormalOperator, n: int) -> NDArray:
    rng = np.random.default_rng(31)
    return rng.normal(size=(*A.shape, n)) + 1j * rng.normal(size=(*A.shape, n))


def residual(A: NormalOperator, x: NDArray, b: NDArray) -> NDArray[np.float64]:
    return np.linalg.norm(A.apply(x) - b, axis=(0, 1)) / np.linalg.norm(b, axis=(0, 1))


DIVISIONS = [
    ((4, 4, 4, 4), (2, 2, 2, 2)),
    ((4, 4, 4, 4), (4, 4, 4, 4)),
    ((4, 4, 4, 8), (2, 4, 4, 2)),
    ((6, 2, 2, 8), (2, 1, 2, 2)),
    ((6, 4, 2, 8), (3, 2, 1, 8)),
]
"""Lattice and aggregates: coarse extents of 1 to 4, where offsets coincide; hops over several aggregates."""


@pytest.mark.parametrize(
    ("extents", "aggregate", "naive"),
    [*((*each, False) for each in DIVISIONS), (*DIVISIONS[0], True)],
    ids=str,
)
def test_coarse_operator_is_the_galerkin_product(extents: Any, aggregate: Any, naive: bool) -> None:
    D = dslash(extents, naive=naive)
    B = SquaredDslash(D)
    rng, k = np.random.default_rng(5), 3
    vectors = rng.normal(size=(*B.shape, k)) + 1j * rng.normal(size=(*B.shape, k))
    P, restricted = prolongation(Aggregates(Grid(extents), aggregate), vectors)
    coarse, transfer = galerkin_normal(B, P), P.for_cycles()
    size = coarse.unknowns

    def prolonged(x: NDArray) -> NDArray:
        out = np.zeros((*B.shape, x.shape[-1]), complex)
        transfer.add_prolonged(x, out)
        return out

    matrix = matrix_of(prolonged, coarse.shape)
    assert np.abs(matrix.conj().T @ matrix - np.eye(size)).max() < 1e-13
    flat = vectors.reshape(-1, k)
    assert np.abs(matrix @ (matrix.conj().T @ flat) - flat).max() < 1e-12
    assert np.abs(restricted().reshape(-1, k) - matrix.conj().T @ flat).max() < 1e-12
    x = rng.normal(size=(*B.shape, 2)) + 0j
    assert np.abs(transfer.restrict(x).reshape(-1, 2) - matrix.conj().T @ x.reshape(-1, 2)).max() < 1e-12
    expected = matrix.conj().T @ matrix_of(B.apply, B.shape) @ matrix
    found = replace(coarse, shift=0.25).dense()
    assert np.abs(found - expected - 0.25 * np.eye(size)).max() < 1e-12
    assert np.linalg.eigvalsh(found)[0] > 0.25 - 1e-12


@pytest.mark.parametrize(
    ("extents", "aggregate"), [((12, 6, 6, 6), (6, 6, 6, 6)), ((16, 4, 4, 4), (2, 4, 4, 4))], ids=str
)
def test_coarse_operator_of_larger_aggregates(extents: Any, aggregate: Any) -> None:
    """The same on random fields, in single precision as a setup has it."""
    B = SquaredDslash(dslash(extents))
    rng = np.random.default_rng(6)
    vectors = (rng.normal(size=(*B.shape, 4)) + 1j * rng.normal(size=(*B.shape, 4))).astype(np.complex64)
    P, _ = prolongation(Aggregates(Grid(extents), aggregate), vectors)
    coarse, transfer = galerkin_normal(B, P), P.for_cycles()
    x = rng.normal(size=(*coarse.shape, 2)).astype(np.complex64)
    fine = np.zeros((*B.shape, 2), np.complex64)
    transfer.add_prolonged(x, fine)
    expected = transfer.restrict(B.astype(np.complex64).apply(fine))
    assert np.abs(coarse.apply(x) - expected).max() < 3e-6 * np.abs(expected).max()


@pytest.mark.parametrize(("extent", "offsets"), [(4, 41), (6, 33), (8, 33), (1, 121)])
def test_offsets_of_large_grids(extent: int, offsets: int) -> None:
    """Those that the literature counts; of single sites those that D_eo D_oe has."""
    blocks = Aggregates(Grid((24 * extent,) * 4), (extent,) * 4)
    assert len(coarse_offsets(blocks, long=True)) == offsets


@pytest.mark.parametrize("extents", [(1, 2, 3, 4), (3, 3, 3, 6)], ids=str)
def test_no_site_has_two_of_one_colour_at_its_offsets(extents: Any) -> None:
    blocks = Aggregates(Grid(tuple(4 * n for n in extents)), (4, 4, 4, 4))  # type: ignore[arg-type]
    offsets = coarse_offsets(blocks, long=True)
    colours = coloured(blocks.coarse, offsets)[neighbours_at(blocks.coarse, offsets)]
    assert all(len(np.unique(row)) == len(offsets) for row in colours)


@pytest.mark.parametrize(
    ("kind", "precision", "masses"),
    [
        ("free", "double", MASSES),
        ("periodic", "double-single", (0.05, 0.005)),
        ("rough", "double", MASSES),
        ("rough", "double-single", MASSES),
        ("hot", "double-single", (0.005,)),
    ],
)
def test_solutions_are_those_of_the_matrix(kind: str, precision: str, masses: tuple[float, ...]) -> None:
    """True residuals at every mass, also of zero modes; errors are at most |r| over the lowest eigenvalue."""
    space = small_space(kind)
    assert np.linalg.eigvalsh(space.coarse.dense())[0] > -1e-7
    B = SquaredDslash(dslash(kind=kind))
    values, vectors = np.linalg.eigh(matrix_of(B.apply, B.shape))
    for m in masses:
        A = NormalOperator(dslash(kind=kind), m)
        b = block(A, 3)
        solution = space.solver(1e-10, precision=precision, max_iterations=400).solve(A, b)
        assert residual(A, solution.x, b).max() <= 1e-10
        np.testing.assert_allclose(solution.residual, residual(A, solution.x, b), rtol=1e-3)
        exact = vectors @ (vectors.conj().T @ b.reshape(-1, 3) / (values + A.shift)[:, None])
        error = np.linalg.norm(solution.x.reshape(-1, 3) - exact, axis=0) / np.linalg.norm(b, axis=(0, 1))
        assert error.max() < 1.1e-10 / (values[0] + A.shift)


def test_fewer_iterations_than_cg_and_as_many_at_every_mass() -> None:
    D = dslash((4, 4, 4, 8))
    space = CoarseDeflation((2, 2, 2, 4), 12).setup(D)
    counts = []
    for m in MASSES:
        A = NormalOperator(D, m)
        b = block(A, 2)
        solution = space.solver(1e-10).solve(A, b)
        counts.append(solution.iterations)
        assert solution.matvecs >= 9 * 2 * solution.iterations
    assert max(counts) <= 1.3 * min(counts)
    assert max(counts) < BatchedCG(1e-10).solve(A, b).iterations / 4


@pytest.mark.parametrize("modes", [0, 8])
def test_coarse_solves_iterate_as_well(modes: int) -> None:
    """With and without coarse eigenvectors; fewer iterations with them."""
    iterative = replace(SMALL, direct=0, modes=modes).setup(dslash())
    A = NormalOperator(dslash(), 0.005)
    b = block(A, 2)
    exact = small_space().solver(1e-10).solve(A, b)
    solution = iterative.solver(1e-10, coarse_tolerance=1e-3).solve(A, b)
    assert residual(A, solution.x, b).max() <= 1e-10
    assert solution.iterations <= exact.iterations + 3
    assert exact.extras["coarse_iterations"] == 0 < solution.extras["coarse_iterations"]
    if modes:
        alone = replace(iterative, modes=None).solver(1e-10, coarse_tolerance=1e-3).solve(A, b)
        assert solution.extras["coarse_iterations"] < alone.extras["coarse_iterations"]


@pytest.mark.parametrize("direct", [2048, 0])
def test_columns_do_not_depend_on_each_other(direct: int) -> None:
    """1, 3 and 16 of them, zero, copies, tiny or huge ones; nor does a solve depend on the one before."""
    space = replace(small_space(), direct=direct)
    A = NormalOperator(dslash(), 0.005)
    b = block(A, 16)
    b[..., 4], b[..., 7] = 0, b[..., 2]
    b[..., 9] *= 1e-100
    b[..., 11] *= 1e100
    solver = space.solver(1e-9)
    whole, again = solver.solve(A, b), solver.solve(A, b)
    assert whole.residual.max() <= 1e-9 and not whole.x[..., 4].any()
    assert np.array_equal(whole.x, again.x)
    for columns in ([2], [0, 9, 11]):
        part = solver.solve(A, np.ascontiguousarray(b[..., columns]))
        for place, column in enumerate(columns):
            x, y = part.x[..., place], whole.x[..., column]
            assert np.abs(x - y).max() < 1e-5 * np.abs(y).max()


def test_a_setup_gives_the_same_bits() -> None:
    first, second = SMALL.setup(dslash()), SMALL.setup(dslash())
    assert np.array_equal(first.transfer.packed.vectors, second.transfer.packed.vectors)
    assert np.array_equal(first.coarse.dense(), second.coarse.dense())


def test_single_precision_throughout() -> None:
    A = NormalOperator(dslash().astype(np.complex64), 0.05)
    b = block(A, 2).astype(np.complex64)
    solution = small_space().solver(1e-5, precision="double").solve(A, b)
    assert solution.x.dtype == np.complex64 and residual(A, solution.x, b).max() <= 1e-5


def test_what_is_not_finite_and_guesses() -> None:
    A = NormalOperator(dslash(), 0.05)
    b = block(A, 3)
    solver = small_space().solver(1e-8)
    x = solver.solve(A, b).x
    b[0, 0, 1] = np.nan
    solution = solver.solve(A, b, on_failure="return")
    assert solution.status is SolveStatus.NOT_FINITE
    assert np.isnan(solution.residual).tolist() == [False, True, False]
    assert not solution.x[..., 1].any() and solution.residual[[0, 2]].max() <= 1e-8
    guess = np.ascontiguousarray(x[..., [0, 2]])
    assert solver.solve(A, np.ascontiguousarray(b[..., [0, 2]]), x0=guess).iterations == 0


def test_a_space_of_the_same_links_serves_another_operator_object() -> None:
    links = dslash().links
    copy = StaggeredDslash(replace(links, fat=links.fat.copy()))
    small_space().check(NormalOperator(copy, 0.3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CoarseDeflation((3, 2, 2, 2)).setup(dslash()), "aggregates of 3 sites do not divide the 4"),
        (lambda: CoarseDeflation((1, 1, 1, 1)).setup(dslash()), "1x1x1x1 sites have not as many even as odd"),
        (lambda: CoarseDeflation((2, 2, 2, 2)).setup(dslash()), "24 components on even sites, fewer than"),
        (lambda: prolongation(Aggregates(Grid((4, 4, 4, 4)), (2, 2, 2, 2)), np.ones((128, 3, 2), complex)),
         "linearly dependent on an aggregate: .* a filter of lower degree"),
        (lambda: CoarseDeflation(vectors=65), "at most 64 vectors, got 65"),
        (lambda: CoarseDeflation(vectors=0), "vectors of a coarse space .* of at least 1, got 0"),
        (lambda: CoarseDeflation(degree=0), "degree of a coarse space .* of at least 1, got 0"),
        (lambda: CoarseDeflation(edge=1.0), "edge of the filter of a coarse space must lie between 0 and 1"),
        (lambda: small_space().solver(products=0), "products of the smoother must .* at least 1, got 0"),
        (lambda: small_space().solver(low=2.0), "low of the smoother must lie between 0 and 1, got 2.0"),
        (lambda: small_space().solver(coarse_tolerance=0.0), "tolerance must lie between 0 and 1"),
        (lambda: small_space().solver(tolerance=2.0), "tolerance must lie between 0 and 1"),
        (lambda: small_space().solver(precision="double-half"), "give FlexibleCG 'double-single'"),
        (lambda: small_space().check(NormalOperator(dslash(kind="hot"), 0.1)), "one of another operator"),
        (lambda: small_space().check(NormalOperator(dslash((4, 4, 4, 8)), 0.1)), r"fields \(128, 3\), .*256"),
        (lambda: small_space().check(NormalOperator(dslash(), 0.1, ODD)), "NormalOperator on odd sites"),
        (lambda: small_space().check(SquaredDslash(dslash())), "got SquaredDslash"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.slow
def test_flat_on_a_rough_lattice() -> None:
    """8^3 x 16, beta = 5.7: iterations at all masses within 30 %, where those of CG double."""
    lattice = Lattice((8, 8, 8, 16))
    with kernels_of("cpu"):
        thin = thermalised(lattice, 5.7, 11, "coarse", sweeps=60, overrelaxation=2, xp=np)
        D = StaggeredDslash(hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0))
        space, counts = CoarseDeflation().setup(D), []
        for m in MASSES:
            A = NormalOperator(D, m)
            solution = space.solver(1e-10).solve(A, block(A, 1))
            assert solution.residual.max() <= 1e-10
            counts.append(solution.iterations)
    assert max(counts) <= min(1.3 * min(counts), 24)

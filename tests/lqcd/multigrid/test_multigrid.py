"""Setups and solves: correct, as fast as they should be, the same after storing, and refused where poor."""

from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import Normal
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.wilson_links import WilsonLinks, wilson_links
from stages.lqcd.kernels.dispatch import as_numpy, kernels_of
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid import hierarchy as hierarchies
from stages.lqcd.multigrid import setup as module
from stages.lqcd.multigrid.aggregates import aggregates, prolongation, random_fields
from stages.lqcd.multigrid.coarse_operator import EvenOddOperator, galerkin, put_products
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid, PoorSetup, check_vectors
from stages.lqcd.multigrid.smoothers import PolynomialSmoother
from stages.lqcd.multigrid.wilson import FineWilson
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.solution import SolveStatus
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")

SMALL = Multigrid((LevelParameters(aggregate=(2, 2, 2, 2), vectors=8),))
DEEP = Multigrid(
    (
        LevelParameters(aggregate=(2, 2, 2, 2), vectors=8, refinements=1),
        LevelParameters(aggregate=(1, 1, 1, 2), vectors=8, refinements=1),
        LevelParameters(aggregate=(2, 1, 2, 1), vectors=8, refinements=1),
    )
)


@pytest.fixture
def gauge(reference_data: Any) -> Any:
    def read(extent: int) -> Any:
        return read_gauge(reference_data / f"ddalphaamg/{extent}x{extent}x{extent}x{extent}b6.0000id3n1")

    return read


def operator(gauge: Any, mass: float, xp: Any = np) -> WilsonOperator:
    made = wilson_links(xp.asarray(gauge.links), gauge.lattice, boundary="antiperiodic", csw=1.0)
    return WilsonOperator(WilsonDslash(made), mass)


def source(M: WilsonOperator, rhs: int, xp: Any = np) -> Any:
    rng = np.random.default_rng(577)
    shape = (*M.shape, rhs)
    return xp.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape))


def relative(M: WilsonOperator, x: Any, b: Any) -> Any:
    xp_norm = np.linalg.norm
    left = as_numpy(b - M.apply(x)).reshape(-1, b.shape[-1])
    return xp_norm(left, axis=0) / xp_norm(as_numpy(b).reshape(-1, b.shape[-1]), axis=0)


@pytest.mark.parametrize(
    "kernels", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_solves_the_system(gauge: Any, kernels: str) -> None:
    """Against CG on the normal equations, on the 4^4 configuration, for every right-hand side."""
    xp = pytest.importorskip("cupy") if kernels == "cuda" else np
    with kernels_of("cpu"):
        M = operator(gauge(4), -0.4, xp)
        hierarchy = SMALL.setup(M)
        S, b = hierarchy.system, source(M, 8, xp)
        assert S.shape == (M.lattice.half_volume, 12) and hierarchy.dtype == np.complex64
        solution = hierarchy.solver().solve(S, S.prepare(b)[0])
        x = S.reconstruct(solution.x, b)
        assert solution.residual.max() <= 1e-10
        assert relative(M, x, b).max() < 3e-10
        normal, right = Normal(S), S.adjoint.apply(S.prepare(b)[0])
        other = BatchedCG(tolerance=1e-13).solve(normal, right, on_failure="return").x
        assert np.abs(as_numpy(solution.x - other)).max() < 1e-8 * np.abs(as_numpy(other)).max()
        assert solution.iterations < 20
        half = hierarchy.solver(precision="double-half").solve(S, S.prepare(b)[0])
        assert half.residual.max() <= 1e-10 and half.iterations <= solution.iterations + 1


def test_flavours_share_near_null_vectors(wilson: Any, draw: Any) -> None:
    """Those of +mu serve -mu and other twisted masses; coarse operators are their own."""
    M = wilson((4, 4, 4, 4), 0.05).with_twist(0.2)
    hierarchy, b = SMALL.setup(M), draw(*M.shape, 3)
    for factor, own in ((1, M), (-1, M.other_flavour), (0.1, M.with_twist(0.1 * 0.2))):
        each = hierarchy.twist_scaled(factor)
        S = each.system
        solution = each.solver().solve(S, S.prepare(b)[0])
        assert relative(own, S.reconstruct(solution.x, b), b).max() < 3e-10
        assert solution.iterations < 20
        P = hierarchy.cycle.levels[0].prolongation
        fields = partial(put_products, FineWilson(own.astype(np.complex64)))
        exact, found = galerkin(P, fields), each.cycle.coarsest.A
        assert np.abs(found.diagonal - exact.diagonal).max() < 3e-6
        assert np.abs(found.links - exact.links).max() < 3e-6


def test_the_twist_of_the_coarsest_grid_is_measured(wilson: Any, monkeypatch: Any) -> None:
    """Where GCR solves that grid a factor may converge faster."""
    monkeypatch.setattr(hierarchies, "DIRECT_UNKNOWNS", 8)
    few, M = replace(SMALL, coarsest_steps=2), wilson((4, 4, 4, 4), -0.3).with_twist(0.05)
    rate = few.setup(M).rate
    monkeypatch.setattr(module, "LARGEST_FACTOR", 1.0)
    assert rate <= few.setup(M).rate


def test_deep_hierarchies_of_odd_and_tiny_grids(wilson: Any, draw: Any) -> None:
    """6x4x4x4 by way of 3x2x2x2 and 1x2x2x1 to one site: one to three levels solve the same system."""
    M = wilson((6, 4, 4, 4), 0.05)
    levels = (
        LevelParameters(aggregate=(2, 2, 2, 2), vectors=4, refinements=1),
        LevelParameters(
            aggregate=(3, 1, 1, 2),
            vectors=4,
            refinements=1,
            post=PolynomialSmoother(4),
        ),
        LevelParameters(aggregate=(1, 2, 2, 1), vectors=4, refinements=0),
    )
    b = draw(*M.shape, 3)
    for depth in (1, 2, 3):
        hierarchy = Multigrid(levels[:depth]).setup(M)
        assert len(hierarchy.cycle.levels) == depth
        S = hierarchy.system
        solution = hierarchy.solver().solve(S, S.prepare(b)[0])
        assert relative(M, S.reconstruct(solution.x, b), b).max() < 3e-10
        if depth == 1:
            plain = GCR(tolerance=1e-10, restart=20).solve(S, S.prepare(b)[0])
        assert solution.iterations < 0.6 * plain.iterations
    half = hierarchy.solver(precision="double-half").solve(S, S.prepare(b)[0])
    assert half.residual.max() <= 1e-10 and half.iterations <= solution.iterations + 1


def flat(gauge: Any, multigrid: Multigrid, masses: tuple[float, ...], rhs: int) -> tuple[Any, Any]:
    """Assert that iterations agree within 30 percent or one; the last hierarchy and right-hand sides."""
    counts = []
    for mass in masses:
        M = operator(gauge, mass)
        hierarchy = multigrid.setup(M)
        b = hierarchy.system.prepare(source(M, rhs))[0]
        counts.append(hierarchy.solver().solve(hierarchy.system, b).iterations)
    assert max(counts) <= 1.3 * min(counts) + 1, counts
    return hierarchy, b


@pytest.mark.parametrize(
    "multigrid",
    [pytest.param(SMALL, id="one level", marks=pytest.mark.slow), pytest.param(DEEP, id="three levels")],
)
def test_stored_setup_gives_the_same_bits(gauge: Any, multigrid: Multigrid) -> None:
    M = operator(gauge(4), -0.4)
    hierarchy = multigrid.setup(M)
    loaded = multigrid.load(hierarchy.arrays(), hierarchy.metadata(), M)
    b = source(M, 8)[0].astype(np.complex64)
    assert np.array_equal(hierarchy.apply(b), loaded.apply(b))
    refuses("loaded keeps no vectors", loaded.arrays)
    assert loaded.attempts == hierarchy.attempts and loaded.rate < multigrid.largest_rate
    again = multigrid.setup(M)
    assert np.array_equal(again.apply(b), loaded.apply(b))


def test_setup_makes_the_system_of_every_coarse_operator_once(wilson: Any, monkeypatch: Any) -> None:
    counts: Counter[str] = Counter()
    packed: list[EvenOddOperator] = []

    def counted(name: str) -> None:
        function = getattr(module, name)

        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, call)

    def inverse(A: EvenOddOperator) -> Any:
        packed.append(A)
        return right(A)

    right = EvenOddOperator.inverse.fget
    monkeypatch.setattr(EvenOddOperator, "inverse", property(inverse))
    for name in ("prolongation", "coarsest"):
        counted(name)
    DEEP.setup(wilson())
    assert counts["prolongation"] > counts["coarsest"] > 1
    assert len({id(A) for A in packed}) == len(packed) == 2  # of the first grid, built twice


def test_more_vectors_than_kernels_take_are_refused() -> None:
    check_vectors([24, 64])
    refuses("65 near-null vectors, but multigrid on a GPU takes at most 64", check_vectors, [24, 65])


def test_columns_of_a_galerkin_product_come_in_parts(wilson: Any, monkeypatch: Any) -> None:
    """By fields of all columns, and of two at a time: the same coarse operator."""
    fine = FineWilson(wilson())
    fields = random_fields((fine.grid.sites, 12, 5), fine.dtype, fine.links, 31)
    P, _ = prolongation(aggregates(fine.grid, (4, 2, 2, 2)), fields)
    once = fine.galerkin(P)
    monkeypatch.setattr(FineWilson, "most_columns", 2)
    parts = fine.galerkin(P)
    for a, b in ((once.diagonal, parts.diagonal), (once.links, parts.links)):
        assert abs(a - b).max() <= 1e-13 * abs(a).max()


def test_another_operator_than_wilsons_on_the_finest_grid(wilson: Any, draw: Any) -> None:
    """One of eight components, a coarse operator, in double: set up, solved with, and stored."""
    wide = FineWilson(wilson((4, 4, 4, 8), 0.02))
    P, _ = prolongation(aggregates(wide.grid, (1, 1, 1, 2)), draw(wide.grid.sites, 12, 4))
    A = wide.galerkin(P)
    assert A.dtype == np.complex128 and A.components == 8
    multigrid = Multigrid((LevelParameters((2, 2, 2, 2), 6, refinements=1),), fine=lambda A: A)
    hierarchy, b = multigrid.setup(A), draw(*A.shape, 2)
    rhs, source = A.prepare(b.copy())
    solution = hierarchy.solver().solve(hierarchy.system, rhs)
    left = b - A.apply(A.reconstruct(solution.x, source))
    assert np.linalg.norm(left) < 1e-9 * np.linalg.norm(b)
    plain = GCR(tolerance=1e-10, restart=20).solve(A.operator, A.prepare(b.copy())[0])
    assert solution.iterations < 0.4 * plain.iterations
    loaded = multigrid.load(hierarchy.arrays(), hierarchy.metadata(), A)
    rough = rhs.astype(np.complex64)
    assert np.array_equal(loaded.apply(rough), hierarchy.apply(rough))
    with pytest.raises(InputError, match="another operator or gauge field"):
        heavier = FineWilson(wilson((4, 4, 4, 8), 0.03)).galerkin(P)
        multigrid.load(hierarchy.arrays(), hierarchy.metadata(), heavier)


def test_stored_setup_of_another_operator_is_refused(gauge: Any) -> None:
    M = operator(gauge(4), -0.4)
    hierarchy = SMALL.setup(M)
    arrays, metadata = hierarchy.arrays(), hierarchy.metadata()
    refuses("another operator or gauge field", SMALL.load, arrays, metadata, operator(gauge(4), -0.41))
    links = M.links.links.copy()
    links[2, 1, 17] = np.eye(3)
    changed = WilsonLinks(links, M.links.csw, M.lattice, M.links.boundary, M.links.anisotropy, 0.0)
    with pytest.raises(InputError, match="another operator or gauge field"):
        SMALL.load(arrays, metadata, WilsonOperator(WilsonDslash(changed), -0.4))
    refuses("build it again", SMALL.load, arrays, {**metadata, "format": 0}, M)
    refuses("one of a 8x4x4x4 lattice", SMALL.load, arrays, {**metadata, "extents": [8, 4, 4, 4]}, M)
    with pytest.raises(InputError, match="not those of these levels"):
        Multigrid((LevelParameters(aggregate=(2, 2, 2, 4), vectors=8),)).load(arrays, metadata, M)


def test_poor_setup_is_built_again_and_then_refused(wilson: Any) -> None:
    M = wilson()
    demanding = Multigrid(
        (LevelParameters(aggregate=(2, 2, 2, 2), vectors=2, refinements=0, post=PolynomialSmoother(1)),),
        largest_rate=0.001,
    )
    with pytest.raises(PoorSetup, match="from two seeds"):
        demanding.setup(M)


def test_second_attempt_is_recorded(wilson: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {77: float("nan"), 78: 0.2}
    monkeypatch.setattr(module, "measured_rate", lambda _, seed, *begun: rates[seed])
    level = LevelParameters(aggregate=(2, 2, 2, 2), vectors=2, refinements=0)
    hierarchy = Multigrid((level,), seed=77).setup(wilson())
    assert [attempt.seed for attempt in hierarchy.attempts] == [77, 78]
    assert hierarchy.rate == 0.2 and np.isnan(hierarchy.attempts[0].rate)


def test_right_hand_side_that_is_not_finite_costs_no_other(wilson: Any, draw: Any) -> None:
    level = LevelParameters(aggregate=(2, 2, 2, 2), vectors=4, refinements=1)
    M = wilson()
    hierarchy = Multigrid((level,)).setup(M)
    b = draw(*M.shape, 3)
    b[1, 7, 2, 1] = np.inf
    S = hierarchy.system
    for precision in ("double-single", "double-half"):
        solution = hierarchy.solver(precision=precision).solve(S, S.prepare(b)[0], on_failure="return")
        assert solution.status is SolveStatus.NOT_FINITE
        assert np.flatnonzero(~(solution.residual <= 1e-10)).tolist() == [1]


@pytest.mark.parametrize("refinements", [0, 1, 2, 3])
def test_vectors_are_refined_as_often_as_asked(wilson: Any, monkeypatch: Any, refinements: int) -> None:
    """The finest level's, which the grid below serves, and those of the grid below when they stay."""
    refined, right = Counter[int](), module.refined

    def counted(system: Any, vectors: Any, cycle: Any) -> Any:
        refined[vectors.shape[-1]] += 1
        return right(system, vectors, cycle)

    monkeypatch.setattr(module, "refined", counted)
    finest = LevelParameters(aggregate=(2, 2, 2, 2), vectors=4, refinements=refinements)
    below = LevelParameters(aggregate=(1, 1, 1, 2), vectors=3, refinements=3 - refinements)
    Multigrid((finest, below)).setup(wilson())
    assert refined == Counter({4: refinements, 3: 3 - refinements})


def test_bad_parameters(wilson: Any) -> None:
    refuses("do not divide", Multigrid((LevelParameters(aggregate=(3, 2, 2, 2)),)).setup, wilson())
    with pytest.raises(InputError, match="do not divide the 1 sites"):
        Multigrid((LevelParameters(vectors=4), LevelParameters(aggregate=(2, 1, 1, 1)))).setup(wilson())
    with pytest.raises(InputError, match="fewer than the 8 near-null vectors"):
        Multigrid((LevelParameters(aggregate=(1, 1, 1, 1), vectors=8),)).setup(wilson((2, 2, 2, 2)))
    for wrong in ({"vectors": 0}, {"refinements": -1}, {"steps": 0}, {"tolerance": 1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            LevelParameters(**wrong)  # type: ignore[arg-type]
    for other in ({"levels": ()}, {"coarsest_steps": 0}, {"largest_rate": 1.0}):
        with pytest.raises(InputError):
            Multigrid(**other)  # type: ignore[arg-type]
    refuses("steps of a smoother must be a whole number", PolynomialSmoother, 0)


def test_flat_in_the_mass_on_a_small_lattice(gauge: Any) -> None:
    flat(gauge(4), SMALL, (-0.2, -0.4), 3)


@pytest.mark.slow
def test_flat_in_the_mass(gauge: Any) -> None:
    """Also: errors at equal residuals are smaller than those of BiCGstab, 2.8 times on this configuration."""
    with kernels_of("cpu"):
        errors_are_smaller_than_those_of_bicgstab(*flat(gauge(8), Multigrid(), (-0.55, -0.6), 16), 2.7)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("extents", "lightest"), [((8, 8, 8, 16), -0.58), ((16, 16, 16, 16), -0.56)])
def test_flat_in_the_mass_on_configurations_by_heat_bath(extents, lightest):
    """From the strange quark to the lightest mass at which BiCGstab converges (docs/notes/multigrid.md)."""
    lattice = Lattice(extents)
    settings = {"refinements": 2, "smoothing": 8}
    multigrid = multigrid_of([{**settings, **level} for level in default_levels(lattice)], 577)
    with kernels_of("cpu"):
        made = SimpleNamespace(links=thermalised(lattice, 6.0, 577, "multigrid", 50, 4), lattice=lattice)
        errors_are_smaller_than_those_of_bicgstab(*flat(made, multigrid, (-0.52, lightest), 4))


def errors_are_smaller_than_those_of_bicgstab(hierarchy: Hierarchy, b: Any, times: float = 3) -> None:
    """Assert that BiCGstab's largest relative error over relative residual is so many times as large."""
    S, rhs = hierarchy.system, b.shape[-1]
    exact = hierarchy.solver(tolerance=1e-13).solve(S, b, on_failure="return").x.reshape(-1, rhs)
    ratios = []
    for solver in (hierarchy.solver(tolerance=1e-6), BiCGstab(tolerance=1e-6)):
        solution = solver.solve(S, b)
        error = np.linalg.norm(solution.x.reshape(-1, rhs) - exact, axis=0)
        ratios.append(np.max(error / np.linalg.norm(exact, axis=0) / solution.residual))
    assert times * ratios[0] < ratios[1], ratios


def test_hierarchy_preconditions_the_whole_schur_complement(gauge: Any) -> None:
    """One cycle reduces the error of a random residual as the setup has measured."""
    M = operator(gauge(4), -0.4)
    hierarchy = SMALL.setup(M)
    S = WilsonSchur(M.astype(np.complex64))
    b = source(M, 8)[0].astype(np.complex64)
    left = b - S.apply(hierarchy.apply(b))
    assert (
        np.linalg.norm(left.reshape(-1, 8), axis=0) < 0.6 * np.linalg.norm(b.reshape(-1, 8), axis=0)
    ).all()

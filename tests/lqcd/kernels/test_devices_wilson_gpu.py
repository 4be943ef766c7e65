"""Wilson-clover operators, their solvers and multigrid on several devices give what one gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
from delays import delay_launches
from test_devices_gpu import on_parts

from pipeline import At
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels import (
    cg_update,
    clover,
    half_update,
    lane_blas,
    random_numbers,
    short_numbers,
    wilson_dslash,
)
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda.devices.group import group_of, spread_over
from stages.lqcd.kernels.fields import converted, empty_field, field_like
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.kernels.transfer import copy_to_host, to_device
from stages.lqcd.kernels.wilson_update import wilson_update
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.multigrid import aggregates as grid_module
from stages.lqcd.multigrid.aggregates import aggregates, prolongation, random_on_grid
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.multigrid.wilson import FineWilson
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.mesons.propagator import propagator
from stages.mesons.sources import point_sources
from stages.mesons.two_point import meson_two_point

pytestmark = pytest.mark.gpu

LATTICES = (Lattice((16, 16, 16, 24)), Lattice((16, 16, 16, 28)))
"""Of coarse grids with parities, and without, where cuts lie within aggregates."""

LATTICE, MASS = LATTICES[0], 0.0
LEVELS = [
    {"aggregate": [4, 4, 4, 4], "vectors": 24, "smoothing": 6, "refinements": 1},
    {"aggregate": [2, 2, 2, 2], "vectors": 16, "smoothing": 4, "refinements": 1},
]
Results = dict[str, Any]


@pytest.fixture(scope="module")
def gauges() -> dict[Lattice, GaugeLinks]:
    def made(lattice: Lattice) -> GaugeLinks:
        options: dict[str, Any] = {"beta": 6.0, "seed": 31, "sweeps": 6, "overrelaxation": 1}
        at = At(config="spread.1", backend="cuda")
        return heatbath_configuration(at=at, extents=lattice.extents, **options)

    return {lattice: made(lattice) for lattice in LATTICES}


def on(lattice: Lattice, devices: tuple[int, ...], compute: Callable[[], Results]) -> dict[str, np.ndarray]:
    """Results in the memory of the host."""
    with spread_over(lattice, devices):
        return {name: np.asarray(copy_to_host(value)) for name, value in compute().items()}


def assert_alike(one: Results, many: Results, tolerance: float = 0.0) -> None:
    """Equal bits, or equal to a tolerance of the largest element."""
    for name, expected in one.items():
        if tolerance:
            limit = tolerance * abs(expected).max()
            np.testing.assert_allclose(many[name], expected, rtol=0, atol=limit, err_msg=name)
        else:
            np.testing.assert_array_equal(many[name], expected, err_msg=name)


def random_field(lattice: Lattice, n: int, seed: int, dtype: Any = complex) -> Any:
    """A field on the even sites in the memory of all devices."""
    field = empty_field((lattice.half_volume, 12, n), complex, cupy)
    random_numbers.fill_random(field, seed, 0)
    return converted(field, dtype)


def operator(gauge: GaugeLinks, csw: float = 1.0, mu: float = 0.0, **options: Any) -> WilsonOperator:
    links = wilson_links(to_device(gauge.links), gauge.lattice, boundary="antiperiodic", csw=csw)
    return WilsonOperator(WilsonDslash(links, **options), MASS, mu)


@on_parts
@pytest.mark.parametrize(
    ("lattice", "mu"), [(LATTICES[0], 0.0), (LATTICES[1], 0.0), (LATTICES[0], 0.1)], ids=str
)
def test_links_and_clover_matrices(gauges, lattice, mu, devices):
    def compute() -> Results:
        M = operator(gauges[lattice], mu=mu)
        single = M.astype(np.complex64)
        return {
            "links": M.links.links,
            "clover term": M.links.clover(EVEN),
            "A": M.clover(ODD).matrices,
            "A^-1": M.clover_inverse(EVEN).matrices,
            "A in single": single.clover(ODD).matrices,
            "packed": M.dslash.packed[ODD].links,
            "packed, single": single.dslash.packed[EVEN].links,
        }

    assert_alike(on(lattice, (0,), compute), on(lattice, devices, compute))


@on_parts
@pytest.mark.parametrize(
    ("dtype", "n", "packing", "mu"),
    [
        (np.complex64, 1, Packing(), 0.0),
        (np.complex64, 16, Packing(), 0.0),
        (np.complex128, 3, Packing(double=False), 0.0),
        (np.complex128, 16, Packing(), 0.0),
        (np.complex64, 16, Packing(), 0.1),
        (np.complex128, 3, Packing(), -0.1),
    ],
)
def test_products(gauges, dtype, n, packing, mu, devices):
    def compute() -> Results:
        M = operator(gauges[LATTICE], mu=mu, packing=packing).astype(dtype)
        x, y = (random_field(LATTICE, n, seed, dtype) for seed in (1, 2))
        D = M.dslash
        results = {
            "D": D.apply_to(EVEN, x),
            "A^-1 D": D.apply_to(ODD, x, clover=("hop", M.clover_inverse(ODD)), b=0.5),
            "M": D.apply_to(EVEN, x, diagonal=y, a=1.0, b=-0.5, clover=("diagonal", M.clover(EVEN))),
            "D^dag": D.apply_to(ODD, x, sign=-1),
            "A": clover.multiply(M.clover(EVEN), x, empty_field(x.shape, dtype, cupy)),
            "S": WilsonSchur(M).apply(x),
            "S in an update": WilsonSchur(M).update(x, y, (0.3j, -1.1, 0.7), field_like(x), field_like(x)),
        }
        if packing.double:
            hop = wilson_dslash.wilson_hop(D.packed[EVEN], 6, x, empty_field(x.shape, dtype, cupy))
            results["hop"] = hop
        return results

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute))


@on_parts
@pytest.mark.parametrize("n", [6, 16])
def test_fields_of_16_bits(gauges: dict[Lattice, GaugeLinks], n: int, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        links = wilson_links(to_device(gauges[LATTICE].links), LATTICE, boundary="antiperiodic")
        packed = wilson_dslash.pack_fields(links.links, (1.0,) * 4, LATTICE, EVEN, np.complex64)
        x, y = (short_numbers.to_half(random_field(LATTICE, n, seed, np.complex64)) for seed in (5, 6))
        out = short_numbers.HalfField.empty(*x.shape[::2], cupy)
        wilson_dslash.wilson_dslash(packed, x, out, diagonal=y, a=0.3)
        single = wilson_dslash.wilson_dslash(packed, x, empty_field(x.shape, np.complex64, cupy))
        updated = short_numbers.HalfField.empty(*x.shape[::2], cupy)
        wilson_update(packed, x, updated, own=y, source=out, factors=(0.3j, -1.1, 0.7))
        half_update.half_update(y, [x, out], cupy.full((2, n), 0.1 + 0.2j), cupy.full(n, 0.7j))
        taken = short_numbers.take(x, np.arange(n // 2))
        return {
            "codes": x.codes,
            "scales": x.scales,
            "from half": short_numbers.from_half(x),
            "D codes": out.codes,
            "D scales": out.scales,
            "D": single,
            "D in an update codes": updated.codes,
            "D in an update scales": updated.scales,
            "updated codes": y.codes,
            "updated scales": y.scales,
            "taken codes": taken.codes,
            "taken scales": taken.scales,
        }

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute))


@on_parts
@pytest.mark.parametrize("n", [1, 16])
def test_directions_of_16_bits(n: int, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        y, r, *fields = (random_field(LATTICE, n, seed, np.complex64) for seed in range(5))
        xs, a = half_update.HalfBasis.like(y, 3), cupy.full((2, n), 0.1 - 0.2j)
        for k, field in enumerate(fields):
            short_numbers.to_half(field, xs[k])
        products = half_update.half_basis_dots(xs, y)
        combined = half_update.half_basis_combine(y, xs.fields(0, 2), a, xs[2], r)
        norms2 = half_update.half_basis_update(y, xs.fields(1, 3), a)
        results = {"products": products, "combined": combined, "norms": norms2, "y": y}
        return {**results, "codes": xs.codes, "scales": xs.scales}

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute), 1e-12)


@on_parts
def test_gram_matrices_of_each_right_hand_side(devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        basis = empty_field((4, LATTICE.half_volume, 12, 16), np.complex64, cupy)
        random_numbers.fill_random(basis, 3, 1)
        gram = lane_blas.lane_gram(basis)
        return {"gram": gram, "c": lane_blas.lane_least_squares(gram)}

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute), 1e-12)


def normal_cg(tolerance: float, precision: str) -> NormalEquations:
    return NormalEquations(BatchedCG(tolerance, precision=precision))


def true_residuals(gauge: GaugeLinks, x: np.ndarray, b: np.ndarray, mu: float) -> np.ndarray:
    """|b - S x| / |b| of each right-hand side, by an operator that one GPU makes for it."""
    S = WilsonSchur(operator(gauge, mu=mu))
    norms = (np.linalg.norm(field, axis=(0, 1)) for field in (b - copy_to_host(S.apply(to_device(x))), b))
    return np.divide(*norms)


@on_parts
def test_sums_in_16_bits(devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        p, r, t = (short_numbers.to_half(random_field(LATTICE, 12, seed, np.complex64)) for seed in (1, 2, 3))
        x = random_field(LATTICE, 12, 4, np.complex64)
        c = BiCGstabCoefficients(cupy.full((9, 12), 0.1 + 0.2j), cupy.full((4, 12), 3.0))
        c.real("target2")[:] = 0
        half_update.half_alpha(p, t, c)
        half_update.half_omega(t, p, r, c)
        half_update.half_residual(x, p, r, t, c)
        dot, norms2 = half_update.half_dot(p, r), cupy.empty(12)
        half_update.half_norms(r, norms2)
        cg = CGCoefficients(cupy.full((6, 12), 0.7), 12)
        cg.target2[...] = 0
        cg_update.cg_advance(x, p, r, cg)
        cg_update.cg_residual(r, t, cg)
        fields = {"p": short_numbers.from_half(p), "r": short_numbers.from_half(r), "x": x}
        return {"c": c.numbers, "reals": c.reals, "dot": dot, "norms2": norms2, "cg": cg.numbers, **fields}

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute), 1e-12)


@on_parts
@pytest.mark.parametrize(
    ("solver", "precision", "mu"),
    [
        (BiCGstab, "double", 0.0),
        (BiCGstab, "double-single", 0.0),
        (BiCGstab, "double-half", 0.0),
        (normal_cg, "double-half", 0.0),
        (normal_cg, "double-half", 0.1),
        (GCR, "double", 0.0),
        (GCR, "double-single", 0.0),
        (GCR, "double-single", -0.1),
    ],
)
def test_solves(gauges, solver, precision, mu, devices):
    """The operator has applied nothing before, and makes what it needs in the first iteration."""
    iterations = []

    def compute() -> Results:
        S, b = WilsonSchur(operator(gauges[LATTICE], mu=mu)), random_field(LATTICE, 12, 7)
        solution = solver(1e-9, precision=precision).solve(S, b)
        iterations.append(solution.iterations)
        return {
            "x": solution.x,
            "b": b,
            "A": S.M.clover(EVEN).matrices,
            "A^-1": S.M.clover_inverse(ODD).matrices,
        }

    one, many = on(LATTICE, (0,), compute), on(LATTICE, devices, compute)
    for results in (one, many):
        residuals = true_residuals(gauges[LATTICE], results["x"], results["b"], mu)
        assert residuals.max() < 2e-9, (results is many, residuals)
    x = {"x": one.pop("x")}, {"x": many.pop("x")}
    assert_alike(one, many)
    assert_alike(*x, 1e-7)
    assert abs(iterations[0] - iterations[1]) <= 2 + iterations[0] // 25


@on_parts
@pytest.mark.parametrize("precision", ["double", "double-single"])
def test_order_holds_whatever_a_device_waits_for(gauges, precision, devices, monkeypatch):
    """Every launch waits a random time on each device: bits stay. Three parts begin within tiles."""
    lattice = LATTICES[1]

    def compute() -> Results:
        S = WilsonSchur(operator(gauges[lattice]))
        return {"x": BiCGstab(1e-9, precision=precision).solve(S, random_field(lattice, 12, 7)).x}

    plain = on(lattice, devices, compute)
    delay_launches(group_of(lattice, devices), monkeypatch)
    assert_alike(on(lattice, devices, compute), plain)


@pytest.mark.parametrize("shared", [1, 1 << 30], ids=["coarse grid shared", "coarse grid on the first"])
@on_parts
@pytest.mark.parametrize("lattice", LATTICES, ids=str)
def test_transfer_and_coarse_operator(gauges, lattice, devices, shared, monkeypatch):
    fine_sites = min(each.volume for each in LATTICES)
    monkeypatch.setattr(grid_module, "SHARED_SITES", min(shared, fine_sites))

    def compute() -> Results:
        A = FineWilson(operator(gauges[lattice], mu=0.1).astype(np.complex64))
        like, grid = A.links, A.grid
        P, _ = prolongation(aggregates(grid, (4, 4, 4, 4)), random_on_grid(grid, 12, 24, like, 5, 0))
        x = random_on_grid(grid, 12, 16, like, 6, 0)
        coarse = A.galerkin(P)
        whole, cycles = P.on_all_sites(), P.for_cycles()
        y = whole.restrict(x)
        even = x.reshape(2, lattice.half_volume, 12, 16)[0]
        results = {"vectors": P.vectors, "P^H x": y, "even P^H x": cycles.restrict(even)}
        whole.add_prolonged(y, x)
        cycles.add_prolonged(y, even)
        rhs, source = coarse.prepare(y)
        results |= {
            "P y": x,
            "X": coarse.diagonal,
            "X of -mu": coarse.twist_scaled(-1).diagonal,
            "Y": coarse.links,
            "A y": coarse.apply(y),
        }
        x = coarse.operator.apply(rhs)
        defect = coarse.defect(x)
        return {**results, "rhs": rhs, "S x": x, "defect": defect, "y": coarse.reconstruct(x, source)}

    assert_alike(on(lattice, (0,), compute), on(lattice, devices, compute), 1e-5)


@pytest.mark.parametrize("shared", [1, 2048])
@on_parts
def test_multigrid(gauges, devices, shared, monkeypatch):
    monkeypatch.setattr(grid_module, "SHARED_SITES", shared)
    iterations, rates = [], []

    def compute() -> Results:
        hierarchy = multigrid_of(LEVELS, 577).setup(operator(gauges[LATTICE]))
        b = random_field(LATTICE, 16, 8)
        solution = hierarchy.solver(1e-10).solve(hierarchy.system, b)
        again = hierarchy.solver(1e-10).solve(hierarchy.system, b)
        iterations.append(solution.iterations)
        rates.append(hierarchy.rate)
        return {"x": solution.x, "x again": again.x}

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute), 1e-8)
    assert abs(iterations[0] - iterations[1]) <= 1
    np.testing.assert_allclose(rates[1], rates[0], rtol=0.02)


@on_parts
def test_a_chunk_of_mesons(gauges: dict[Lattice, GaugeLinks], devices: tuple[int, ...]) -> None:
    at = At(config="spread.1", source=("x0y0z0t3",), backend="cuda")
    solves = ExpectedSolves("bicgstab", "double-single", 12)

    def compute() -> Results:
        M = wilson_operator(
            gauges[LATTICE], at=at, boundary="antiperiodic", mass=MASS, csw=1.0, solves=solves
        )
        sources = point_sources(gauges[LATTICE], at=at)
        solve = Solve("bicgstab", 1e-10, "double-single", block=12)
        solved = propagator(M, sources, at=at, solve=solve)
        correlators = meson_two_point(solved, at=at, extents=LATTICE.extents)
        return {"correlators": cupy.asarray(correlators.correlator)}

    assert_alike(on(LATTICE, (0,), compute), on(LATTICE, devices, compute), 1e-8)

"""Eigenvectors, deflation, projections and distillation of a lattice on several devices: what one gives."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
from test_devices_gpu import LATTICE, Results, assert_alike, on, on_parts, operator, several

from pipeline import At
from stages.distillation.laplace_eigenvectors import laplace_eigenvectors
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.deflation_space import DeflationSpace, deflation, deflation_space
from stages.loops.low_mode_loops import low_mode_loops
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash
from stages.lqcd.distillation.columns import FullColumns
from stages.lqcd.distillation.currents import current_insertions
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.distillation.elementals import elementals
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.projection import sink_projections
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels import basis, batched_basis, link_fields, powers, random_numbers
from stages.lqcd.kernels.checksum import checksum
from stages.lqcd.kernels.fields import assign, empty_field, field_like, slices_field
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.space import Space
from stages.lqcd.solvers.sstep_cg import SStepCG
from stages.lqcd.spectroscopy.gammas import DIRAC

pytestmark = pytest.mark.gpu

T, SITES = LATTICE.time_extent, LATTICE.sites_per_slice
VECTORS = 24
WORK_BYTES = 4 << 30


@pytest.fixture(scope="module")
def thin() -> GaugeLinks:
    at = At(config="spread.2", backend="cuda")
    return heatbath_configuration(
        at=at, extents=LATTICE.extents, beta=6.0, seed=32, sweeps=2, overrelaxation=1
    )


def random(shape: tuple[int, ...], seed: int, dtype: Any = complex, slices: bool = False) -> Any:
    """An array in the memory of all devices."""
    array = slices_field(shape, dtype, cupy) if slices else empty_field(shape, dtype, cupy)
    random_numbers.fill_random(array, seed, 0)
    return array


def small(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*shape, 2)).view(complex)[..., 0]


@on_parts
@pytest.mark.parametrize("dtypes", [(complex, complex), ("c8", "c8"), ("c8", complex)], ids=str)
@pytest.mark.parametrize("shape", [(LATTICE.half_volume, 3), (2, LATTICE.half_volume, 12)], ids=str)
def test_tall_products(shape: tuple[int, ...], dtypes: tuple[Any, Any], devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        V, x = random((*shape, 24), 1, dtypes[0]), random((*shape, 8), 2, dtypes[1])
        projected = [basis.project(V[..., :20], x) for _ in range(2)]
        basis.add_combination(x, V[..., :20], small((20, 8), 3))
        basis.rotate_in_place(V[..., :20], small((20, 12), 4))
        return {"first": projected[0], "again": projected[1], "x": x, "V": V[..., :12].copy()}

    one, many = on((0,), compute), on(devices, compute)
    tolerance = 1e-13 if dtypes[0] is complex else 2e-6
    # cuBLAS promises the same bits only while one stream of a card works, and here each part has its own
    assert_alike({"first": many["again"]}, many, tolerance=tolerance)
    assert_alike(one, many, tolerance=tolerance)


@on_parts
@pytest.mark.parametrize("dtype", [complex, "c8"])
def test_products_of_many_systems(dtype: Any, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        V, x, y = (random((T, 3 * SITES, n), n, dtype, slices=True) for n in (40, 8, 8))
        assign(V[..., 30:38], x)
        projected = batched_basis.project(V[..., :30], x)
        batched_basis.add_combination(x, V[..., :30], small((T, 30, 8), 3))
        batched_basis.rotate_in_place(V[..., :30], small((T, 30, 12), 4))
        quotients, norms2 = batched_basis.rayleigh(x, y)
        results = {"projected": projected, "x": x, "y": y, "quotients": quotients, "norms2": norms2}
        return {**results, "V": V[..., :12].copy(), "copied": V[..., 30:].copy()}

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, ("copied",), 1e-12 if dtype is complex else 1e-5)


@on_parts
def test_links_and_numbers(thin: GaugeLinks, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        made = thermalised(LATTICE, 5.9, 7, "spread", 1, 1, xp=cupy)
        links = to_device(thin.links)
        phases, turned = field_like(links), field_like(links)
        link_fields.staggered_phases(links, LATTICE, phases)
        link_fields.boundary_signs(links, LATTICE, (3, 1), turned)
        odd = links[:, 1].copy()
        link_fields.boundary_signs(odd, LATTICE, (3,), odd, 1)
        fields = [random((2, LATTICE.half_volume, 12, 3), 5, dtype) for dtype in (complex, "c8")]
        sums = [checksum(array) for array in (links, made, fields[1], links[1])]
        return {
            "heat bath": made,
            "phases": phases,
            "signs": turned,
            "odd": odd,
            **{f"random {field.dtype}": field for field in fields},
            "checksums": np.array(sums, np.uint64),
        }

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, tuple(one))


@on_parts
@pytest.mark.parametrize("dtype", [complex, "c8"])
def test_laplace_eigenvectors(thin: GaugeLinks, dtype: Any, devices: tuple[int, ...]) -> None:
    tolerance = 1e-10 if dtype is complex else 1e-5

    def compute() -> Results:
        solver = LaplaceSolver(VECTORS, tolerance=tolerance, dtype=dtype)
        modes = solver.solve(to_device(thin.links), LATTICE)
        return modes._asdict()

    one, many = on((0,), compute), on(devices, compute)
    np.testing.assert_allclose(many["values"], one["values"], rtol=0, atol=36 * tolerance)
    assert many["residuals"].max() <= 4 * 36 * tolerance
    distance = 1e-5 if dtype is complex else 0.2
    np.testing.assert_allclose(many["vectors"], one["vectors"], rtol=0, atol=distance)


@on_parts
def test_a_chunk_of_slices(thin: GaugeLinks, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        at = At(config="spread.2", time=list(range(4, 12)), backend="cuda")
        links = smeared_links(thin, at=at, kind="stout", steps=2, rho=0.1)
        return laplace_eigenvectors(links, at=at, vectors=8, tolerance=1e-9)._asdict()

    one, many = on((0,), compute), on(devices, compute)
    np.testing.assert_allclose(many["eigenvalue"], one["eigenvalue"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(many["vectors"], one["vectors"], rtol=0, atol=1e-4)


@on_parts
@pytest.mark.parametrize("dtype", [complex, "c8"])
def test_distillation(thin: GaugeLinks, dtype: Any, devices: tuple[int, ...]) -> None:
    insertions = Insertions(LATTICE, ((0, 0, 0), (1, 0, -1)), ("", "+x-y", "-z"))
    columns = FullColumns((3, 17), T, VECTORS)

    def compute() -> Results:
        links = to_device(thin.links)
        vectors = random((T, 2, SITES, 3, VECTORS), 1, dtype, slices=True)
        solutions = random((2, LATTICE.half_volume, 12, 8), 2, dtype)
        fields, gammas = (solutions, solutions), list(DIRAC.values())[:3]
        streamed = sink_projections(cupy.asnumpy(vectors), solutions, cupy, WORK_BYTES)
        return {
            "elementals": elementals(vectors, links, insertions, cupy, WORK_BYTES),
            "projections": sink_projections(vectors, solutions, cupy, WORK_BYTES),
            "streamed": streamed,
            "currents": current_insertions(*fields, links, insertions, gammas, cupy, WORK_BYTES),
            "sources": distillation_sources(vectors, LATTICE, columns, range(20, 32), cupy),
        }

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, tolerance=1e-12 if dtype is complex else 1e-5)


@on_parts
def test_block_lanczos_and_deflated_solves(thin: GaugeLinks, devices: tuple[int, ...]) -> None:
    iterations = []

    def compute() -> Results:
        dslash = operator(thin)
        B = SquaredDslash(dslash, EVEN)
        pairs = BlockLanczos(VECTORS, tolerance=1e-8).solve(B)
        space = Space.measured(B, pairs.vectors)
        b = random((LATTICE.half_volume, 3, 8), 4)
        solver = DeflatedSolver(BatchedCG(1e-9, precision="double-single"), StaggeredSpace(dslash, space))
        solution = solver.solve(NormalOperator(dslash, 0.05), b)
        iterations.append(solution.iterations)
        return {
            "values": pairs.values,
            "residuals": pairs.residuals,
            "within": space.within(b),
            "x": solution.x,
        }

    one, many = on((0,), compute), on(devices, compute)
    np.testing.assert_allclose(many["values"], one["values"], rtol=0, atol=1e-8)
    assert many["residuals"].max() <= 1e-8 * 30
    assert abs(iterations[0] - iterations[1]) <= 1 + iterations[0] // 50
    np.testing.assert_allclose(many["within"], one["within"], rtol=0, atol=1e-4 * abs(one["within"]).max())
    np.testing.assert_allclose(many["x"], one["x"], rtol=0, atol=1e-7 * abs(one["x"]).max())


@on_parts
def test_powers_and_sstep_cg(thin: GaugeLinks, devices: tuple[int, ...]) -> None:
    iterations = []

    def compute() -> Results:
        results: Results = {}
        for dtype in (complex, "c8"):
            fields = random((5, LATTICE.half_volume, 3, 16), 3, dtype)
            numbers = cupy.zeros((2, 8))
            coordinates = powers.Coordinates.empty(fields, np.eye(9), numbers[0], numbers[1])
            powers.gram(fields, coordinates)
            results[f"Gram {fields.dtype}"] = coordinates.high
            results[f"magnitudes {fields.dtype}"] = powers.magnitudes(fields)
        A = NormalOperator(operator(thin), 0.2)
        b = random((LATTICE.half_volume, 3, 8), 4)
        for solver in (
            SStepCG(1e-9, precision="double-single"),
            SStepCG(1e-9, s=8, basis="newton"),
            SStepCG(1e-9, s=1),
        ):
            solution = solver.solve(A, b)
            iterations.append(solution.iterations)
            results[f"x, s = {solver.s}"] = solution.x
        return results

    one, many = on((0,), compute), on(devices, compute)
    for before, after in zip(iterations[:3], iterations[3:], strict=True):
        assert abs(before - after) <= 8 + before // 50
    assert_alike(one, many, tolerance=1e-6)


@pytest.mark.parametrize("precision", ["double", "half"])
def test_chunks_of_low_modes(thin: GaugeLinks, precision: str) -> None:
    """Eigenvalues of two searches, and the current of each mode of the same stored vectors.

    Modes that were found and rounded by themselves have other currents: what 16 bits leave of high modes in
    one of a small eigenvalue is as large as its current on a field as rough as this.
    """
    at = At(config="spread.2", backend="cuda")
    boundary: dict[str, Any] = {"boundary": "antiperiodic", "naik_epsilon": 0.0}

    def search() -> Results:
        dslash = hisq_operator(thin, at=at, **boundary)
        return deflation_space(dslash, at=at, vectors=16, tolerance=1e-8, precision=precision)._asdict()

    one, many = on((0,), search), on(several()[0], search)
    np.testing.assert_allclose(many["eigenvalue"], one["eigenvalue"], rtol=0, atol=1e-8)
    assert many["residual"].max() < (3e-7 if precision == "double" else 3e-4)

    def loops() -> Results:
        dslash = hisq_operator(thin, at=at, **boundary)
        low = low_mode_loops(deflation(dslash, DeflationSpace(**one), at=at), at=at)
        return {"eigenvalue": low.eigenvalue, "residual": low.residual, "current": low.current}

    expected = on((0,), loops)
    for devices in several():
        assert_alike(expected, on(devices, loops), tolerance=1e-6)

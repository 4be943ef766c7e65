"""One lattice on several devices gives what one gives: on all that there are, else on parts of one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
from delays import delay_launches

from pipeline import At
from stages.base.errors import InputError
from stages.base.gpus import GPUS_PER_WORKER, sharing
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import current_loops
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links
from stages.lqcd.kernels import block_blas, lane_blas, random_numbers, slice_products
from stages.lqcd.kernels.cuda.devices.group import current_group, group_of, spread_over
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.kernels.transfer import copy_to_host, to_device
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.sstep_cg import SStepCG
from stages.shared.costs import TimeSlices

pytestmark = pytest.mark.gpu

EXTENTS = (16, 16, 16, 26)
LATTICE = Lattice(EXTENTS)
Results = dict[str, Any]


PARTS = (2, 3, 5, 8)
"""Of which 2 alone divides t."""


def several() -> list[tuple[int, ...]]:
    """Devices of each number of parts."""
    count = cupy.cuda.runtime.getDeviceCount() if cupy.is_available() else 1
    return [tuple(part % count for part in range(parts)) for parts in PARTS]


on_parts = pytest.mark.parametrize("devices", several(), ids=lambda devices: f"{len(devices)}parts")
"""Lets a test take `devices`; `pytest -k 8parts` chooses a number."""


@pytest.fixture(scope="module")
def gauge() -> GaugeLinks:
    options: dict[str, Any] = {"beta": 6.0, "seed": 31, "sweeps": 1, "overrelaxation": 0}
    at = At(config="spread.1", backend="cuda")
    return heatbath_configuration(at=at, extents=LATTICE.extents, **options)


def on(devices: tuple[int, ...], compute: Callable[[], Results]) -> dict[str, np.ndarray]:
    """Results in the memory of the host."""
    with spread_over(LATTICE, devices):
        return {name: np.asarray(copy_to_host(value)) for name, value in compute().items()}


def assert_alike(one: Results, many: Results, equal: tuple[str, ...] = (), tolerance: float = 1e-12) -> None:
    for name, expected in one.items():
        if name in equal:
            np.testing.assert_array_equal(many[name], expected, err_msg=name)
        else:
            np.testing.assert_allclose(
                many[name], expected, rtol=0, atol=tolerance * abs(expected).max(), err_msg=name
            )


def random_field(n: int, seed: int, dtype: Any = complex) -> Any:
    """A field on the even sites in the memory of all devices."""
    shape = (LATTICE.half_volume, 3, n)
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((*shape, 2)).view(complex)[..., 0]
    field = empty_field(shape, dtype, cupy)
    field[...] = cupy.asarray(numbers.astype(dtype))
    return field


def linear_algebra() -> Results:
    x, y, z = (random_field(16, seed) for seed in (1, 2, 3))
    a = cupy.asarray(np.random.default_rng(4).standard_normal((16, 16)) + 0j)
    basis = empty_field((3, *x.shape), complex, cupy)
    for number, field in enumerate((x, y, z)):
        basis[number] = field
    results: Results = {
        "norms2": block_blas.norms2(x),
        "dots": block_blas.dots(x, y),
        "slices": slice_products.slice_dots(x, y, LATTICE),
        "gram": block_blas.gram(x, y),
        "lane dots": lane_blas.lane_dots(basis, y),
    }
    block_blas.update(z, x, a)
    lane_blas.lane_update(y, basis, cupy.ones((3, 16), complex))
    return {**results, "update": z, "lane update": y}


@on_parts
def test_linear_algebra(devices: tuple[int, ...]) -> None:
    one, many = on((0,), linear_algebra), on(devices, linear_algebra)
    assert_alike(one, many, ("slices", "update", "lane update"))


@on_parts
def test_links_noise_and_current(gauge: GaugeLinks, devices: tuple[int, ...]) -> None:
    def compute() -> Results:
        links = hisq_links(to_device(gauge.links), LATTICE, boundary="antiperiodic", naik_epsilon=0.1)
        fields = [
            random_numbers.noise(LATTICE, 0, (5, 6), range(16), kind, np.complex128, cupy)
            for kind in ("z2", "gaussian")
        ]
        thin = to_device(gauge.links)
        return {
            "fat": links.fat,
            "long": links.long,
            "z2": fields[0],
            "gaussian": fields[1],
            "current": slice_products.one_link_current(thin[:, 0].copy(), *fields, LATTICE, 0),
        }

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, ("fat", "long", "z2", "gaussian", "current"))


def operator(gauge: GaugeLinks) -> StaggeredDslash:
    links: StaggeredLinks = hisq_links(
        to_device(gauge.links), LATTICE, boundary="antiperiodic", naik_epsilon=0.0
    )
    return StaggeredDslash(links)


@on_parts
@pytest.mark.parametrize("solver", [BatchedCG, BlockCGrQ])
@pytest.mark.parametrize("precision", ["double", "double-single"])
def test_solves(gauge: GaugeLinks, solver: Any, precision: str, devices: tuple[int, ...]) -> None:
    iterations = []

    def compute() -> Results:
        A = NormalOperator(operator(gauge), 0.2)
        solution = solver(1e-9, precision=precision).solve(A, random_field(16, 7))
        iterations.append(solution.iterations)
        return {"x": solution.x, "norms": solution.residual}

    one, many = on((0,), compute), on(devices, compute)
    assert abs(iterations[0] - iterations[1]) <= 1 + iterations[0] // 50
    np.testing.assert_allclose(many["x"], one["x"], rtol=0, atol=1e-7 * abs(one["x"]).max())


@on_parts
@pytest.mark.parametrize("solver", [BatchedCG, BlockCGrQ, SStepCG, partial(SStepCG, s=8, basis="newton")])
def test_order_holds_whatever_a_device_waits_for(gauge, solver, devices, monkeypatch):
    """Every launch waits a random time on each device: bits stay."""

    def compute() -> Results:
        A = NormalOperator(operator(gauge), 0.2)
        return {"x": solver(1e-9, precision="double-single").solve(A, random_field(16, 7)).x}

    plain = on(devices, compute)
    delay_launches(group_of(LATTICE, devices), monkeypatch)
    np.testing.assert_array_equal(on(devices, compute)["x"], plain["x"])


def test_memory_that_arrays_give_back_is_used_again() -> None:
    devices = several()[0]
    with spread_over(LATTICE, devices) as group:
        assert group is not None
        first = random_field(16, 1)
        address, taken = first.data.ptr, group.pool.bytes_of_parts
        del first
        second = random_field(16, 2)
        assert second.data.ptr == address and group.pool.bytes_of_parts == taken
        del second
    assert group.pool.bytes_of_parts == [0] * len(devices)


@on_parts
@pytest.mark.parametrize("solver", ["batched_cg", "block_cgrq"])
def test_a_chunk_of_current_loops(gauge: GaugeLinks, solver: str, devices: tuple[int, ...]) -> None:
    at = At(config="spread.1", noise=(0, 1), backend="cuda")
    solve, drawn = Solve(solver, 1e-9, "double-single", block=16), Noise(3, "z2", {"displacement": 2})

    def compute() -> Results:
        options = {"boundary": "antiperiodic", "naik_epsilon": 0.0}
        dslash = hisq_operator(gauge, at=at, solves=ExpectedSolves(solver, "double-single", 16), **options)
        loops = current_loops(dslash, at=at, mass=0.2, solve=solve, noise=drawn)
        return loops._asdict()

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, tolerance=1e-6)


def test_the_environment_says_how_many_gpus_a_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPUS_PER_WORKER, str(cupy.cuda.runtime.getDeviceCount() + 1))
    slices = TimeSlices(EXTENTS)
    with pytest.raises(InputError, match="number of GPUs that share a lattice"), sharing(slices, "cuda"):
        pass
    monkeypatch.setenv(GPUS_PER_WORKER, "1")
    with sharing(slices, "cuda"):
        assert current_group() is None


def test_the_lattice_of_a_block_is_spread_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU here")
    monkeypatch.setenv(GPUS_PER_WORKER, "2")
    with sharing(TimeSlices(EXTENTS), "cuda"):
        outer = current_group()
        assert outer is not None and outer.partition.t == EXTENTS[3]
        with sharing(TimeSlices((4, 4, 4, 8)), "cuda"):
            inner = current_group()
            assert inner is not None and inner.partition.t == 8 and inner.pool is outer.pool
        with sharing(None, "cuda"):
            assert current_group() is None
        assert current_group() is outer
    assert current_group() is None

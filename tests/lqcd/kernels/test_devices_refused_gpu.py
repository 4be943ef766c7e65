"""Staggered quarks without calls of CuPy on spread arrays: loops, mesons, links; functions as graphs."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
import devices_guard as guard
from delays import delay_launches
from test_devices_gpu import LATTICE, assert_alike, gauge, on, on_parts, operator, random_field, several

from pipeline import At
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import Masses, current_loops, split_even_loops
from stages.loops.deflation_space import EigenSearch, deflation, deflation_space
from stages.loops.low_mode_loops import low_mode_loops
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels import block_blas, lane_blas, random_numbers, stream
from stages.lqcd.kernels.cuda.devices.group import group_of, spread_over
from stages.lqcd.kernels.fields import converted, copied, field_like, slices_field
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.staggered_mesons import displaced
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SpinTaste, operators_of

pytestmark = pytest.mark.gpu

__all__ = ["gauge"]

BOUNDARY: dict[str, Any] = {"boundary": "antiperiodic", "naik_epsilon": 0.0}


@pytest.mark.parametrize(
    ("solver", "precision"),
    [("batched_cg", "double-single"), ("block_cgrq", "double-single"), ("batched_cg", "double-half")],
)
def test_current_loops_are_our_launches_alone(gauge: GaugeLinks, solver: str, precision: str) -> None:
    """Links, noise, dilution, solves and contractions of a chunk."""
    at = At(config="spread.1", noise=(0, 1), backend="cuda")
    solve, drawn = Solve(solver, 1e-9, precision, block=16), Noise(3, "z2", {"displacement": 2})
    with spread_over(LATTICE, several()[0]), guard.refused():
        dslash = hisq_operator(gauge, at=at, solves=ExpectedSolves(solver, precision, 16), **BOUNDARY)
        loops = current_loops(dslash, at=at, mass=0.2, solve=solve, noise=drawn)
    assert np.isfinite(loops.current).all()


def test_disconnected_loops_are_our_launches_alone(gauge: GaugeLinks) -> None:
    """Low modes, and the split-even difference on noise without them."""
    at = At(config="spread.1", noise=(0, 1), probe=(0, 1), backend="cuda")
    search = EigenSearch(block=8, max_restarts=60)
    with spread_over(LATTICE, several()[0]):
        dslash = hisq_operator(
            gauge, at=at, solves=ExpectedSolves("block_cgrq", "double-single", 16), **BOUNDARY
        )
        space = deflation_space(dslash, at=at, vectors=16, tolerance=1e-4, precision="single", search=search)
        with guard.refused():
            low = deflation(dslash, space, at=at)
            modes = low_mode_loops(low, at=at)
            loops = split_even_loops(
                dslash,
                low,
                at=at,
                masses=Masses(0.1, 0.2),
                solve=Solve("block_cgrq", 1e-8, block=16),
                noise=Noise(3, "z2", {"displacement": 2}),
                current_links="smeared",
                deflated_noise=True,
            )
    assert np.isfinite(modes.current).all() and np.isfinite(loops.current).all()


@on_parts
@pytest.mark.parametrize(
    "smearing",
    [{"kind": "stout", "rho": 0.1}, {"kind": "ape", "alpha": 0.5}, {"kind": "hyp", "alpha": [0.6, 0.3]}],
    ids=lambda smearing: str(smearing["kind"]),
)
def test_links_smeared_in_space_are_our_launches_alone(gauge, smearing, devices):
    """Links smeared in space, of a configuration in the host's memory."""

    def compute() -> dict[str, Any]:
        at = At(config="spread.1", backend="cuda")
        with guard.refused():
            made = smeared_links(gauge, at=at, steps=2, **smearing)
        return {"links": made.links}

    one, many = on((0,), compute), on(devices, compute)
    assert_alike(one, many, ("links",))


@on_parts
@pytest.mark.parametrize("dtype", [complex, "c8"])
def test_shifts_of_staggered_mesons_are_our_launches_alone(gauge, dtype, devices):
    operators = map(SpinTaste.parse, operators_of(tuple(MULTIPLETS)))
    chosen = {len(operator.shifts): operator for operator in operators if operator.shifts}
    shape = (LATTICE.time_extent, 2, LATTICE.sites_per_slice, 3, 3)

    def compute() -> dict[str, Any]:
        links = converted(to_device(gauge.links), dtype)
        field = slices_field(shape, dtype, cupy)
        random_numbers.fill_random(field, 5, 0)
        with guard.refused():
            return {
                str(count): displaced(operator, field, links, LATTICE) for count, operator in chosen.items()
            }

    one, many = on((0,), compute), on(devices, compute)
    assert sorted(one) == ["1", "2", "3"]
    assert_alike(one, many, tuple(one))


def of_functions(gauge: GaugeLinks) -> dict[str, Any]:
    """A function of fields of two shapes in turn, with sums of its own; others use memory in between."""
    A = NormalOperator(operator(gauge), 0.2)

    def function(x: Any) -> Any:
        y = A.apply(x)
        lane_blas.lane_scale(y, 1 / block_blas.norms(y), y)
        z = A.apply(y, field_like(y))
        block_blas.affine(z, 0.5, x, 0.25)
        return block_blas.difference(z, y, field_like(z))

    replayed, results = stream.replayed(function, cupy), {}
    for turn in range(4):
        for n in (16, 5):
            x = random_field(n, 10 * turn + n)
            others = [random_field(n, 99) for _ in range(2)]
            results[f"{turn}, {n}"] = copied(replayed(x))
            del others
            np.testing.assert_array_equal(results[f"{turn}, {n}"].get(), function(x).get())
    return results


@on_parts
def test_functions_as_graphs(gauge: GaugeLinks, devices: tuple[int, ...]) -> None:
    one, many = on((0,), lambda: of_functions(gauge)), on(devices, lambda: of_functions(gauge))
    assert_alike(one, many)


def test_order_holds_in_graphs_of_functions(gauge: GaugeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = several()[0]
    plain = on(devices, lambda: of_functions(gauge))
    delay_launches(group_of(LATTICE, devices), monkeypatch)
    late = on(devices, lambda: of_functions(gauge))
    assert_alike(plain, late, tuple(plain))


def test_graphs_that_are_gone_leave_no_memory() -> None:
    devices = several()[0]
    with spread_over(LATTICE, devices) as group:
        assert group is not None
        function = stream.replayed(lambda x: block_blas.scale(x, 2.0, field_like(x)), cupy)
        x = random_field(16, 1)
        for _ in range(3):
            y = function(x)
        with_graph = group.pool.bytes_of_parts
        np.testing.assert_array_equal(y.get(), 2 * x.get())
        del y, function
        assert sum(group.pool.bytes_of_parts) < sum(with_graph)
        del x
    assert group.pool.bytes_of_parts == [0] * len(devices)

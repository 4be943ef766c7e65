"""Stages of connected correlators: against dense traces, and without bias over noise and drawn times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import f as fisher

from pipeline import At
from stages.connected.correlator import (
    ConnectedCorrelator,
    by_current,
    connected_correlator,
)
from stages.connected.low_modes import LowLow, low_low, low_propagator, meson_fields
from stages.connected.walls import WallCorrelators, random_wall_sources, wall_correlators
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.staggered_operator import hisq_operator
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.connected import wall_time
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.meson_fields import meson_fields as of_all_modes
from stages.lqcd.spectroscopy.quark_sources import slice_sites
from stages.lqcd.spectroscopy.vector_currents import CURRENTS, LABELS, vector_current
from stages.mesons.propagator import StaggeredPropagators, staggered_propagator
from stages.mesons.sources import StaggeredSources
from support.dense_staggered import DenseStaggered
from support.matrices import random_su3

MODES, SEED = 8, 607
MASSES = (0.05, 0.3)
ERROR = 1e-3
Chunk = tuple[At, WallCorrelators]


SLOW = pytest.mark.slow


@pytest.fixture(scope="module", params=[(4, 2, 2, 4), pytest.param((4, 4, 4, 4), marks=SLOW)], ids=str)
def dslash(request: pytest.FixtureRequest, reference_kernels: None) -> StaggeredDslash:
    lattice = Lattice(request.param)
    thin = random_su3(np.random.default_rng(771), 4, 2, lattice.half_volume, size=0.5)
    gauge = GaugeLinks(thin, np.array(lattice.extents))
    return hisq_operator(gauge, at=At(config="a"), boundary="antiperiodic", naik_epsilon=0.0)


@pytest.fixture(scope="module")
def dense(dslash: StaggeredDslash) -> DenseStaggered:
    return DenseStaggered.of(dslash.links)


@pytest.fixture(scope="module")
def inverses(dense: DenseStaggered) -> dict[float, NDArray]:
    return {mass: np.linalg.inv(dense.operator(mass)) for mass in MASSES}


@pytest.fixture(scope="module")
def deflation(dslash: StaggeredDslash, dense: DenseStaggered) -> StaggeredSpace:
    """The lowest modes, each with an error of 1e-3 that knows all others, in single precision."""
    half = 3 * dslash.lattice.half_volume
    hops = dense.operator(0.0)[:half, half:]
    vectors = np.linalg.eigh(hops @ hops.conj().T)[1][:, :MODES]
    noise = np.random.default_rng(5).normal(size=(*vectors.shape, 2)) @ [1, 1j]
    wrong = vectors + ERROR * noise / np.linalg.norm(noise, axis=0)
    wrong = wrong.astype(np.complex64).reshape(-1, 3, MODES)
    return StaggeredSpace(dslash, Space.measured(SquaredDslash(dslash, EVEN), wrong))


@pytest.fixture(scope="module")
def low(deflation: StaggeredSpace) -> LowPropagator:
    return low_propagator(deflation, at=At(config="a"))


def walls_of(
    dslash: StaggeredDslash,
    low: LowPropagator | None,
    operators: Sequence[str],
    numbers: Sequence[int],
    mass: float,
    tolerance: float = 1e-12,
    seed: int = SEED,
) -> Chunk:
    at = At(config="a", source=numbers, backend="cpu" if dslash.xp is np else "cuda")
    sources = random_wall_sources(dslash, at=at, operators=operators, seed=seed)
    solve = Solve("block_cgrq", tolerance, "double", block=12)
    solved = staggered_propagator(dslash, sources, at=at, mass=mass, solve=solve)
    options: dict[str, Any] = {"operators": operators, "mass": mass, "seed": seed, "block": 12}
    return at, wall_correlators(solved, sources, dslash, low, at=at, **options)


def exactly_low(low: LowPropagator, operators: Sequence[str], mass: float, width: int = 3) -> LowLow:
    """By meson fields in chunks of rows."""
    rows = [range(n, min(n + width, MODES)) for n in range(0, MODES, width)]
    backend = "cpu" if low.dslash.xp is np else "cuda"
    chunks = [At(config="a", row=each, backend=backend) for each in rows]
    fields = [(at, meson_fields(low, at=at, operators=operators)) for at in chunks]
    return low_low(fields, at=At(config="a"), operators=operators, mass=mass)


def whole(
    walls: Sequence[Chunk], fine: Sequence[Chunk] | None, exact: LowLow | None, currents: Sequence[str]
) -> ConnectedCorrelator:
    at, operators = At(config="a"), tuple(label for name in currents for label in CURRENTS[name])
    given = walls, fine or walls, exact
    return connected_correlator(*given, at=at, operators=operators, currents=currents)


def solved_exactly(sources: StaggeredSources, inverse: NDArray) -> StaggeredPropagators:
    fields = sources.fields
    x = (inverse @ fields.reshape(len(inverse), -1)).reshape(fields.shape)
    none = np.zeros(fields.shape[3:])
    return StaggeredPropagators(x, none, none, none)


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("mass", MASSES)
def test_all_sources_together_are_the_trace(mass, dslash, low, dense, inverses, monkeypatch):
    """LL + rest of every current: walls of all points of a slice have no noise, and four all slices."""
    columns = 3 * 2 * dslash.lattice.sites_per_slice

    def points(lattice: Lattice, time: int, *_: object) -> NDArray:
        source = np.zeros((2, lattice.half_volume, 3, columns), complex)
        source[:, slice_sites(lattice, time)] = np.eye(columns).reshape(2, -1, 3, columns)
        return source

    monkeypatch.setattr("stages.connected.walls.random_wall", points)
    for module in ("stages.connected.walls", "stages.lqcd.spectroscopy.connected"):
        monkeypatch.setattr(f"{module}.COLOURS", columns)
    at = At(config="a", source=range(4))
    sources = random_wall_sources(dslash, at=at, operators=LABELS, seed=SEED)
    solved = solved_exactly(sources, inverses[mass])
    options: dict[str, Any] = {"operators": LABELS, "mass": mass, "seed": SEED, "block": 192}
    walls = wall_correlators(solved, sources, dslash, low, at=at, **options)
    found = whole([(at, walls)], None, exactly_low(low, LABELS, mass), tuple(CURRENTS))
    exact = np.stack(
        [dense.trace(*2 * [dense.current(each)], inverses[mass]).mean(axis=0).real for each in LABELS]
    )
    scale = np.abs(exact).max(axis=1, keepdims=True)
    assert (np.abs(found.operator_correlator - exact) < 1e-10 * scale).all()
    of_currents = by_current(exact, LABELS, tuple(CURRENTS))
    np.testing.assert_allclose(found.correlator, of_currents, atol=1e-10 * scale.max())
    assert np.abs(found.low).max() > 0.01 * np.abs(found.correlator - found.low).max() > 0
    assert np.array_equal(np.sort(walls.source_time), np.arange(4))


@pytest.mark.usefixtures("reference_kernels")
def test_ranks_at_a_momentum_are_those_of_the_library(deflation: StaggeredSpace, low: LowPropagator) -> None:
    at, label, momentum, ranks = At(config="a", row=range(3)), "GY-GY", (1, 0, 0), (5, 1, 2)
    modes = low_propagator(deflation, at=at, ranks=ranks)
    fields = [(at, meson_fields(modes, at=at, operators=(label,), momentum=momentum))]
    found = low_low(fields, at=at, operators=(label,), mass=0.1).low_low[0]
    current = vector_current(low.dslash.links, label)
    expected = of_all_modes(low, [current], [momentum]).low_low(label, label, 0.1, momentum, ranks)
    np.testing.assert_allclose(found, expected.mean(axis=0).real, rtol=1e-12)


def seeds_of(count: int) -> range:
    return range(100, 100 + count)


@pytest.mark.slow
@pytest.mark.parametrize("dslash", [(4, 2, 2, 4)], indirect=True)
@pytest.mark.parametrize("modes", [False, True], ids=["walls", "low modes of error"])
def test_estimates_have_no_bias(modes, dslash, low, dense, inverses):
    """Over 200 seeds: noise, drawn times, sloppy solves to 1e-3 or far worse, fine ones on two walls of four.

    What sloppy solves give by themselves is biased, which the same test sees.
    """
    currents, mass, count = ("pion", "local"), MASSES[0], 200
    operators = tuple(label for name in currents for label in CURRENTS[name])
    exact = np.stack(
        [dense.trace(*2 * [dense.current(o)], inverses[mass]).mean(axis=0).real for o in operators]
    )
    exact = by_current(exact, operators, currents)
    given = exactly_low(low, operators, mass) if modes else None
    part = low if modes else None
    of_tolerance: dict[float, list[NDArray]] = {}
    alone: list[NDArray] = []
    for seed in seeds_of(count):
        make = partial(walls_of, dslash, operators=operators, mass=mass, seed=seed)
        fine = make(None, numbers=(0, 1), tolerance=1e-11)
        for tolerance in (1e-3, 0.3):
            sloppy = [make(part, numbers=(n, n + 1), tolerance=tolerance) for n in (0, 2)]
            found = whole(sloppy, [fine], given, currents).correlator
            of_tolerance.setdefault(tolerance, []).append(found)
        alone.append(whole(sloppy, None, given, currents).correlator)
    for found in of_tolerance.values():
        assert chance_of(np.array(found) - exact) > 1e-3
    assert chance_of(np.array(alone) - exact) < 1e-6


def chance_of(deviations: NDArray) -> float:
    """Of deviations ``[n, ...]`` whose mean is 0: Hotelling's T^2 with its degrees of freedom."""
    d = deviations.reshape(len(deviations), -1)
    n, p = d.shape
    mean, covariance = d.mean(axis=0), np.cov(d.T)
    t2 = n * mean @ np.linalg.solve(covariance, mean)
    return float(fisher.sf(t2 * (n - p) / (p * (n - 1)), p, n - p))


@pytest.mark.gpu
def test_a_gpu_gives_the_same(deflation: StaggeredSpace, low: LowPropagator) -> None:
    dslash, mass = deflation.dslash, MASSES[0]
    gauge = GaugeLinks(dslash.links.origin.links, np.array(dslash.lattice.extents))
    at = At(config="a", backend="cuda")
    there = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    space = replace(deflation.even, vectors=to_device(deflation.even.vectors))
    on_gpu = low_propagator(StaggeredSpace(there, space), at=at)
    both = [
        (walls_of(fields, modes, LABELS, (0, 1), mass)[1], exactly_low(modes, LABELS, mass, width))
        for fields, modes, width in ((dslash, low, 3), (there, on_gpu, 8))
    ]
    (host, host_low), (device, device_low) = both
    assert isinstance(device.correlator, np.ndarray)
    np.testing.assert_allclose(device.correlator, host.correlator, atol=1e-8)
    np.testing.assert_allclose(device.low, host.low, atol=1e-10)
    np.testing.assert_allclose(device_low.low_low, host_low.low_low, atol=1e-10)


def test_times_are_drawn_evenly() -> None:
    lattice = Lattice((4, 4, 4, 12))
    times = np.array([[wall_time(lattice, f"c{n}", 9, index) for index in range(24)] for n in range(600)])
    assert (np.sort(times[:, :12]) == np.arange(12)).all() and np.array_equal(times[:, :12], times[:, 12:])
    first = np.bincount(times[:, 0], minlength=12)
    assert ((first - 50) ** 2 / 50).sum() < 33  # of 11 degrees of freedom
    apart = (times[:, 1] - times[:, 0]) % 12
    assert np.array_equal(np.unique(apart), [6])

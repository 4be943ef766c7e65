"""Distillation on a GPU takes what a plan says, within a fifth, under a cap that its problem does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from laph_costs import laph_costs

from pipeline import At
from pipeline.worker.memory import device_pool
from stages.distillation.current_insertion import Currents, current_insertion
from stages.distillation.laplace_eigenvectors import LaplaceBasis, laplace_eigenvectors
from stages.distillation.perambulator import full_columns, perambulator
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve

pytestmark = pytest.mark.gpu
CONFIG = "memory.1"
SOLVES = {"solver": "bicgstab", "tolerance": 1e-8, "precision": "double"}


@contextmanager
def capped(bytes_: int) -> Iterator[Callable[[], int]]:
    """How much the pool has taken at most beside what was in use; it refuses more than `bytes_`."""
    cupy = pytest.importorskip("cupy")
    pool, own = device_pool("cuda"), cupy.get_default_memory_pool()
    assert pool is not None
    pool.release_unused()
    in_use = own.used_bytes()
    own.set_limit(size=in_use + bytes_)
    pool.restart()
    try:
        yield lambda: pool.bytes - in_use
    finally:
        own.set_limit(size=0)


def gauge(lattice: Lattice) -> GaugeLinks:
    settings = {"beta": 6.0, "seed": 31, "sweeps": 1, "overrelaxation": 0}
    return heatbath_configuration(at=At(config=CONFIG), extents=lattice.extents, **settings)


@pytest.mark.parametrize(("vectors", "block", "precision"), [(64, 8, "double"), (32, 16, "single")])
def test_eigenvectors_of_three_times_more_slices_than_fit(vectors: int, block: int, precision: str) -> None:
    lattice, slices = Lattice((16, 16, 16, 24)), 8
    at: dict[str, Any] = {"config": CONFIG, "backend": "cuda"}
    links = smeared_links(gauge(lattice), at=At(**at), kind="stout", steps=1, rho=0.1)
    sizes = {"vectors": vectors, "block": block, "precision": precision}
    planned, whole = (
        laph_costs(lattice, {**sizes, "slices": number})["laplace_eigenvectors"].device_memory
        for number in (slices, lattice.time_extent)
    )
    assert whole > 2.6 * planned
    tolerance = 1e-3
    for first in range(0, lattice.time_extent, slices):
        times = tuple(range(first, first + slices))
        with capped(int(1.2 * planned)) as taken:
            found = laplace_eigenvectors(
                links,
                at=At(**at, time=times),
                vectors=vectors,
                block=block,
                tolerance=tolerance,
                precision=precision,
            )
            assert planned / 1.2 < taken()
        assert found.residual.max() < 36 * 4 * tolerance


def test_perambulators_on_three_times_more_than_fits() -> None:
    """One eigenvector makes the sources; all, any vectors on the host, are sinks."""
    lattice, vectors, block = Lattice((12, 12, 12, 32)), 960, 4
    thin, at = gauge(lattice), {"config": CONFIG, "backend": "cuda"}
    costs = laph_costs(lattice, {"vectors": vectors}, solves={**SOLVES, "block": block})
    planned = costs["operator"].device_memory + costs["perambulator"].device_memory
    shape = (lattice.time_extent, 2, lattice.sites_per_slice, 3, vectors)
    basis = np.full(shape, np.complex64(1 / np.sqrt(np.prod(shape[1:4]))))
    assert planned + basis.nbytes > 2.9 * planned
    columns = full_columns(at=At(**at, source=("t0",)), time_extent=lattice.time_extent, eigenvectors=1)
    with capped(int(1.2 * planned)) as taken:
        operator = wilson_operator(thin, at=At(**at), boundary="antiperiodic", csw=1.0, mass=1.0)
        result = perambulator(
            operator,
            LaplaceBasis(basis, np.zeros((lattice.time_extent, vectors))),
            columns,
            at=At(**at, source=("t0",)),
            solve=Solve("bicgstab", 1e-8, "double", block=block),
        )
        assert planned / 1.2 < taken()
    assert result.residual.max() < 1e-8


def test_insertions_between_three_times_more_solutions_than_fit() -> None:
    """Solutions from two sources wait on the host; any vectors are sources."""
    lattice, vectors, block = Lattice((12, 12, 12, 32)), 16, 4
    thin, at = gauge(lattice), {"config": CONFIG, "backend": "cuda"}
    insertions = {"separations": [3], "momenta": [[0, 0, 0], [1, 0, 0]], "displacements": ["", "+x"]}
    solves = {**SOLVES, "block": block}
    costs = laph_costs(lattice, {"vectors": vectors}, solves=solves, insertions=insertions)
    planned = costs["operator"].device_memory + costs["current_insertion"].device_memory
    times, rows = lattice.time_extent, 6 * lattice.sites_per_slice
    modes = np.random.default_rng(8).normal(size=(times, rows, vectors)) / np.sqrt(rows) + 0j
    basis = LaplaceBasis(modes.reshape(times, 2, -1, 3, vectors), np.zeros((times, vectors)))
    assert planned + 2 * 4 * vectors * 12 * 16 * lattice.volume > 2.9 * planned
    places = At(**at, source=("t0", "t7"))
    columns = full_columns(at=places, time_extent=times, eigenvectors=vectors)
    with capped(int(1.2 * planned)) as taken:
        operator = wilson_operator(thin, at=At(**at), boundary="antiperiodic", csw=1.0, mass=1.0)
        result = current_insertion(
            operator,
            basis,
            columns,
            at=places,
            currents=Currents((3,), ((0, 0, 0), (1, 0, 0)), ("", "+x")),
            solve=Solve("bicgstab", 1e-8, "double", block=block),
        )
        assert planned / 1.2 < taken()
    assert max(result.residual.max(), result.sink_residual.max()) < 1e-8

"""Speed of solves in the records of chunks, and the copy bandwidth of a machine that it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from pipeline import At
from stages.lqcd.dirac.application import schur_application, staggered_application
from stages.lqcd.kernels.copy_bandwidth import copy_bandwidth, copy_file, keep_copy_bandwidth
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import SolveStatistics
from stages.shared.solve_record import record_solves
from workflows.benchmarks import staggered, wilson
from workflows.benchmarks.machine import Host
from workflows.benchmarks.speed import Bench

LATTICE = Lattice((4, 4, 4, 8))
PRECISIONS = {"double": np.dtype(np.complex128), "double-single": np.dtype(np.complex64)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's cache in which nothing is known of any machine."""
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path / "cache"))
    copy_bandwidth.cache_clear()
    yield tmp_path / "cache"
    copy_bandwidth.cache_clear()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("columns", [1, 16])
def test_bytes_of_an_application_are_those_of_the_benchmark(precision: str, columns: int) -> None:
    dtype, sites = PRECISIONS[precision], LATTICE.half_volume
    dslash = staggered.random_operator(Host(), LATTICE).dslash
    moved = staggered_application(dslash, columns, precision)
    assert moved.nbytes == pytest.approx(sites * staggered.normal_cost(columns, dtype).perfect_bytes)
    bench = Bench(Host(), LATTICE, LATTICE, (columns,), ("double",), 1.0)
    flops, nbytes = schur_application(
        wilson.schur_for(wilson.random_links(bench), columns).M, columns, precision
    )
    cost = wilson.schur_cost(columns, dtype.itemsize)
    assert (flops, nbytes) == pytest.approx((sites * cost.flops, sites * cost.perfect_bytes))


def test_of_a_processor_nothing_is_known_before_it_was_measured(cache: Path) -> None:
    assert copy_bandwidth("cpu") is None
    threads = numba.get_num_threads()
    keep_copy_bandwidth("cpu", 40.0)
    assert copy_bandwidth("cpu") == 40.0
    try:
        numba.set_num_threads(1)
        copy_bandwidth.cache_clear()
        assert copy_bandwidth("cpu") == pytest.approx(40.0 / threads)
    finally:
        numba.set_num_threads(threads)
    for damage in ("{", '{"cpu": 3}', "[]"):
        copy_file().write_text(damage)
        copy_bandwidth.cache_clear()
        assert copy_bandwidth("cpu") is None


@pytest.mark.gpu
def test_a_gpu_is_measured_once_and_leaves_the_pool_alone(cache: Path) -> None:
    import cupy

    before = cupy.get_default_memory_pool().total_bytes()
    measured = copy_bandwidth("cuda")
    assert measured and measured > 100
    assert cupy.get_default_memory_pool().total_bytes() == before
    copy_bandwidth.cache_clear()
    assert copy_bandwidth("cuda") == measured


def recorded(solver: str, history: Sequence[float] = (1.0, 1e-9)) -> dict[str, Any]:
    """What is recorded of two blocks of 8 columns that took 100 applications each, in 4 seconds."""
    residual = [np.full(8, 1e-9)] * 2
    statistics = SolveStatistics([100, 100], residual, residual, 1600, 4.0, list(history), "converged")
    at = At({"config": ("a",)})
    application = partial(staggered_application, staggered.random_operator(Host(), LATTICE).dslash)
    record_solves(at, Solve(solver, 1e-8, "double"), statistics, application=application)
    return at.statistics


def test_a_solve_records_its_speed_and_its_fraction_of_the_copy_bandwidth(cache: Path) -> None:
    """Cycles of multigrid are not counted: it has none."""
    sites, found = LATTICE.half_volume, recorded("batched_cg")
    assert found["gflops"] == pytest.approx(1600 * 2 * sites * 1146 / 4.0 / 1e9)
    assert found["copy_bandwidth"] is None and found["of_copy_bandwidth"] is None
    keep_copy_bandwidth("cpu", 10.0)
    nbytes = sites * 16 * (2 * 16 * 9 / 8 + 15)
    assert recorded("batched_cg")["of_copy_bandwidth"] == pytest.approx(1600 * nbytes / 4.0 / 1e9 / 10.0)
    keep_copy_bandwidth("cpu", 10.0)
    found = recorded("multigrid")
    assert (found["gflops"], found["of_copy_bandwidth"], found["copy_bandwidth"]) == (None, None, 10.0)


def test_a_long_history_is_thinned(cache: Path) -> None:
    """A solve of a light quark takes some ten thousand iterations, and a store has thousands of records."""
    assert "history_step" not in recorded("batched_cg", np.geomspace(1, 1e-9, 2000))
    found = recorded("batched_cg", np.geomspace(1, 1e-9, 43211))
    assert len(found["history"]) <= 2000 and found["history_step"] == 22
    assert found["history"][100] == pytest.approx(10 ** (-9 * 2200 / 43210), rel=1e-3)

"""Fixtures that every part of the test suite shares."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain, zip_longest
from pathlib import Path
from shutil import disk_usage
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
import scipy.linalg  # noqa: F401  brings a BLAS of its own, which must be there when threads are limited
from distributed import LocalCluster
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from stages.lqcd.kernels.cpu import compiled
from stages.lqcd.kernels.dispatch import as_numpy, kernels_of

MEMORY = Path("/dev/shm")
"""A file system in memory; a commit of a chunk waits for a disk."""

ROOM = 1 << 30
"""Bytes that it has free where temporary folders go there."""

IDLE_CLUSTERS = {
    "ADMIN__TICK__INTERVAL": "1s",
    "ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "WORKER__PROFILE__ENABLED": "False",
}
"""Dask measures itself all the time: 16 % of a processor for two idle workers, 7 % with these settings."""

WAITING = {"pipeline", "workflows", "faults"}
"""Folders of tests that wait for clusters and commands."""

WARM = re.compile(
    r"\b(scheduler|cluster|project|finished|compute): (str|Path|Address|Callable|Compute)\b"
    r"|^def test_\w+\(.*\b(scheduler|cluster|project|finished|compute)\b.*\):$",
    re.MULTILINE,
)
"""A fixture by which a test takes the warm workers."""

LONG = (
    "test_cuda_compile_kernels.py",
    "test_faults.py",
    "test_bad_input.py",
    "test_wilson_solvers.py",
    "test_krylov_solvers.py",
    "test_worker_code.py",
    "test_stage_chain.py",
    "test_extending.py",
    "test_connected.py",
    "test_clusters.py",
    "test_rates.py",
    "test_fault_suite.py",
    "test_deflation.py",
    "test_second_path.py",
    "test_block_lanczos.py",
)
"""Files that take more than ten seconds, which begin first."""


class Families:
    """The families of kernels by name, imported when asked for."""

    def __getattr__(self, name: str) -> ModuleType:
        return import_module(f"stages.lqcd.kernels.{name}")


@dataclass(frozen=True)
class Backend:
    """The library of the arrays that a test works on; its kernels are chosen while the test runs."""

    xp: ModuleType
    kernels = Families()

    def array(self, values: NDArray) -> Any:
        """A copy of `values` where this backend works."""
        return self.xp.array(values)

    def host(self, array: Any) -> NDArray:
        return as_numpy(array)


WHOLE = re.compile(r"^pytestmark = .*pytest\.mark\.(gpu|house|nvrtc)\b", re.MULTILINE)
"""The marker of all tests of a file."""

REFERENCE = Path(__file__).with_name("reference")
"""Numbers that other codes print; their files are elsewhere (docs/reference_data.md)."""

REFERENCE_FILES = Path(
    os.environ.get("QUARKLINE_REFERENCE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)

LEFT_OUT = pytest.StashKey[int]()
"""Number of tests that need those files, where they are absent."""

WORKERS = pytest.StashKey[LocalCluster]()
"""The warm workers of this process, while they run."""

WIDTHS = {1, 2, 3, 4, 8, 12, 16, 17, 33}
"""Numbers of right-hand sides that a quick run may compile CPU kernels for, each of which takes a second."""

OF_WIDTH = re.compile(r"(?:(?:hisq|wilson)_dslash|clover|cg_\w+|lane_\w+|one_link_current)_(\d+)_(?:32|64)")
"""Names of kernels that are compiled for a number of right-hand sides."""

PARTS = 8
"""Parts of the long tests, one of which CI runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=int, metavar="K", help=f"one of {PARTS} parts of the tests")
    parser.addoption("--few", type=int, metavar="N", help="of each test at most N sets of its parameters")
    parser.addoption("--until", type=float, metavar="T", help="skip what may end after this Unix time")


def pytest_configure(config: pytest.Config) -> None:
    """Test processes share the processors: who waits for threads of his own waits for those of the others,
    and the clusters that stay warm for several tests must cost little while nobody uses them.

    Bytecode lies beside the kernels that Numba keeps, also where the shell asks for none: each of a hundred
    processes would compile what it imports, and both test processes all tests.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for setting, value in IDLE_CLUSTERS.items():
        os.environ.setdefault(f"DASK_DISTRIBUTED__{setting}", value)
    if MEMORY.is_dir() and disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if config.getoption("numprocesses", None):
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test is asked for are not imported: some need what may not be installed."""
    if collection_path.suffix != ".py":
        return None
    marker = WHOLE.search(collection_path.read_text())
    return True if marker and f"not {marker[1]}" in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Before markers are looked at, those of the oracle are set; what they leave is put in order."""
    mark_oracles(items)
    yield
    arrange(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Every second test process imports the files from the last to the first.

    In a fresh clone each then rewrites the assertions of half of them, and reads those of the other half.
    """
    report = yield
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if isinstance(collector, pytest.Directory) and int(number) % 2:
        report.result.reverse()
    return report


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def mark_oracles(items: list[pytest.Item]) -> None:
    """The oracle is NumPy of any precision: in single it is slow where the same test has it in double."""
    names = {item.nodeid for item in items}
    for item in items:
        single = "complex64" in item.nodeid and item.nodeid.replace("complex64", "complex128") in names
        if single and getattr(item, "callspec", None) and item.callspec.params.get("backend") == "reference":
            item.add_marker(pytest.mark.slow)


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that need the warm workers come first. Of the others, those that start processes and wait
    alternate with those that compute, so that test processes leave the processors neither idle nor to each
    other; long files are not left for the end.
    """
    leave_out_comparisons(config, items)
    if (few := config.getoption("few")) is not None:
        keep(config, items, few_of_each(items, few))
    if (part := config.getoption("part")) is not None:
        keep(config, items, {item for item in items if in_part(item, part % PARTS)})
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    length = {name: number for number, name in enumerate(LONG)}
    names = sorted(files, key=lambda path: (length.get(path.name, len(LONG)), path))
    others = [path for path in names if not needs_workers(path)]
    waiting = [path for path in others if path.name == "test_house.py" or WAITING & set(path.parts)]
    computing = [path for path in others if path not in waiting]
    order = chain(filter(needs_workers, names), *zip_longest(waiting, computing))
    items[:] = [item for path in order if path for item in files[path]]


def leave_out_comparisons(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need the files of other codes are no tests where these are absent: one line says so."""
    if (REFERENCE_FILES / "milc").is_dir():
        return
    left = [item for item in items if "reference_data" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
    config.stash[LEFT_OUT] = len(left)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a test process of xdist left out, which all do alike."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if number := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{number} comparisons with files of MILC, Chroma and DDalphaAMG left out: set "
            "QUARKLINE_REFERENCE_DATA to their folder, see docs/reference_data.md"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file goes to one test process, and all that need the warm workers to the same one: one cluster."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "warm" if needs_workers(config.rootpath / file) else file

    return Scheduling(config, log)


def keep(config: pytest.Config, items: list[pytest.Item], kept: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def few_of_each(items: list[pytest.Item], few: int) -> set[pytest.Item]:
    """At most so many items of each test, from the first to the last set of parameters."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        each[round(place)]
        for each in tests.values()
        for place in np.linspace(0, len(each) - 1, min(few, len(each)))
    }


def in_part(item: pytest.Item, part: int) -> bool:
    """Whether a test is in this part of the long tests: by a digest of its name, so that it stays there."""
    return int(hashlib.sha256(item.nodeid.encode()).hexdigest(), 16) % PARTS == part


@cache
def needs_workers(file: Path) -> bool:
    """Whether tests of a file take the warm workers, or a project that has run on them."""
    return WARM.search(file.read_text()) is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What needs a GPU is skipped where there is none, also if slow tests are asked for; likewise what
    may take longer than the time that `--until` leaves.
    """
    until, marker = item.config.getoption("until"), item.get_closest_marker("timeout")
    limit = marker.args[0] if marker else float(item.config.getini("timeout"))
    if until and time.time() + limit > until:
        pytest.skip(f"no time is left for a test that may take {limit:.0f} s (--until)")
    if item.get_closest_marker("gpu") and not pytest.importorskip("cupy").is_available():
        pytest.skip("no CUDA device")


TRAPS = ("stages", "pipeline", "workflows", "numpy", "dask", "distributed", "random", "json", "sitecustomize")


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with files that a user may well have beside a workflow, each of which fails when imported."""
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the folder was imported')\n")
    return tmp_path


@pytest.fixture(params=["reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The same test on NumPy, on the CPU kernels and on a GPU."""
    xp = pytest.importorskip("cupy") if request.param == "cuda" else np
    with kernels_of("reference" if request.param == "reference" else "cpu"):
        yield Backend(xp)


@pytest.fixture(scope="module")
def reference_kernels() -> Iterator[None]:
    """The plain NumPy kernels, which need no compilation, for a test module on small lattices."""
    with kernels_of("reference"):
        yield


@pytest.fixture(scope="session")
def two_gpus() -> None:
    """Skips where there are not two GPUs that read each other's memory, or no dask-cuda."""
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("dask_cuda")
    if not cupy.is_available() or cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one worker of two GPUs needs two")
    if not cupy.cuda.runtime.deviceCanAccessPeer(0, 1):
        pytest.skip("these GPUs cannot read each other's memory")


@pytest.fixture(scope="session", autouse=True)
def own_processors() -> Iterator[None]:
    """As many threads for kernels as there are processors for each test process; BLAS has one, as on workers.

    BLAS threads wait for each other by spinning: those of two test processes took the processors from all.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    numba.set_num_threads(max(1, numba.config.NUMBA_NUM_THREADS // processes))
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def known_widths(request: pytest.FixtureRequest) -> Iterator[None]:
    """A quick run compiles kernels for no number of right-hand sides but those of `WIDTHS`."""
    compile_one = compiled._cached

    def checked(function: Any, name: str, *rest: Any, **options: Any) -> Any:
        width = OF_WIDTH.match(name)
        assert not width or int(width[1]) in WIDTHS, f"{name}: no width of quick runs (tests/conftest.py)"
        return compile_one(function, name, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        if {"not slow", "not gpu"} <= set(request.config.option.markexpr.split(" and ")):
            patch.setattr(compiled, "_cached", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests take launch shapes from the folder that QUARKLINE_CACHE names, else from none."""
    folder = os.environ.get("QUARKLINE_CACHE") or str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("QUARKLINE_CACHE", folder)
        yield


@pytest.fixture(scope="session")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's workers write down which toy stages they execute."""
    path = tmp_path_factory.mktemp("log") / "executions.jsonl"
    os.environ["QUARKLINE_TOY_LOG"] = str(path)
    return path


@pytest.fixture(scope="session")
def scheduler(log_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of two workers that stay warm for all tests of this process, as somebody else's cluster.

    A worker that a run gives up is started anew in the middle of another test: its environment is written
    down here and not what that test makes of the process's own.
    """
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "resources": {"device": 1},
        "env": {"NUMBA_NUM_THREADS": "1", "QUARKLINE_TOY_LOG": str(log_path)},
    }
    running = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **options)
    with running:
        request.config.stash[WORKERS] = running
        yield running.scheduler_address


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Idle workers cost a tenth of a processor: they end after the last file that takes them."""
    if nextitem is None or needs_workers(nextitem.path):
        return
    if (running := item.config.stash.get(WORKERS, None)) is not None:
        del item.config.stash[WORKERS]
        running.close()


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Folder of files that other codes wrote; tests that take it are left out where it is absent."""
    return REFERENCE_FILES


@pytest.fixture(scope="session")
def expected() -> dict[str, dict]:
    """Numbers that other codes printed, by the id of the entry."""
    return {entry["id"]: entry for entry in json.loads((REFERENCE / "expected.json").read_text())}

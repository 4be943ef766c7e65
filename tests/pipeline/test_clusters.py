"""Choosing and opening clusters: clear errors where they are not to be had."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dask.system import CPU_COUNT
from distributed import Client

from pipeline import InputError
from pipeline.running.clusters import Demand
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.choose import choose
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.clusters.hosts import command
from pipeline.running.clusters.jobqueue import JobQueue
from pipeline.running.clusters.local import Local, check_loopback, worker_environment
from pipeline.running.clusters.section import ClusterSection, Workers
from pipeline.worker.memory import REUSING

DEMAND = Demand(tasks=4, memory=0)


def at(where: str) -> Address:
    """A cluster that runs already."""
    return Address(ClusterSection(kind="address", where=where))


def started_workers(monkeypatch: pytest.MonkeyPatch, module: str, cluster: Any, demand: Demand) -> int:
    """How many worker processes a cluster asks for, without starting them."""
    asked: list[int] = []

    @contextmanager
    def noted(_: Any, options: dict[str, Any], *__: object) -> Iterator[None]:
        asked.append(options["n_workers"])
        yield None

    monkeypatch.setattr(f"pipeline.running.clusters.{module}.started", noted)
    with cluster.open(demand):
        return asked[0]


@pytest.mark.parametrize(("wanted", "tasks", "workers"), [(100, 6, 6), (3, 6, 3), (5, 0, 1)])
def test_no_more_workers_start_than_have_work(monkeypatch, wanted, tasks, workers):
    demand = Demand(tasks, memory=0)
    assert started_workers(monkeypatch, "local", Local(workers=wanted), demand) == workers
    monkeypatch.setattr("pipeline.running.clusters.cuda._cluster_class", lambda: None)
    monkeypatch.setattr("pipeline.running.clusters.cuda._device_count", lambda: 100)
    assert started_workers(monkeypatch, "cuda", Cuda(workers=wanted), demand) == workers


def test_workers_do_not_import_what_lies_in_the_folder(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this machine, of jobs and of hosts, with the processes that these start."""
    monkeypatch.chdir(traps)
    with Local(workers=1).open(DEMAND) as client:
        assert client.submit(os.getcwd).result(60) == str(traps)
    site = ClusterSection(kind="ssh", prologue=(f"export PYTHONPATH=:{os.environ.get('PYTHONPATH', '')}::",))
    line = command(site, "host", "tls://127.0.0.1:1", {"ca_file": "a", "cert": "b", "key": "c"})
    assert f"; {sys.executable} -m distributed.cli.dask_worker" in line
    done = subprocess.run(["bash", "-c", f"{line} --help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage:" in done.stdout, done.stderr
    prologue = JobQueue(ClusterSection(kind="slurm", cores=1)).options()["job_script_prologue"]
    assert "export PYTHONSAFEPATH=1" in prologue


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Importing a package fails, as if it were not installed."""
    real = builtins.__import__

    def importing(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(f"No module named {package!r}")
        return real(name, *rest, **options)

    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(builtins, "__import__", importing)


def test_names_and_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("local", workers=3) == Local(workers=3)
    assert choose("cuda") == Cuda()
    assert choose("slurm", workers=8) == JobQueue(ClusterSection(kind="slurm", workers=Workers(min=8, max=8)))
    assert choose("tcp://host:8786") == at("tcp://host:8786")
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://host:8786"}')
    assert choose(str(tmp_path / "scheduler.json")) == at(str(tmp_path / "scheduler.json"))
    with pytest.raises(InputError, match="no cluster 'loca': did you mean 'local'"):
        choose("loca")

    monkeypatch.setattr("pipeline.running.clusters.address.TIMEOUT", 0.5)
    for where, said in (
        ("tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127"),
        ("nowhere.json", "neither an address"),
    ):
        with pytest.raises(InputError, match=said):
            at(where).open(DEMAND).__enter__()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise ImportError('no libcuda.so')", "GPUs need CuPy (no libcuda.so): pip install"),
        ("raise PermissionError(13, 'denied', '/home')", "CuPy keeps compiled kernels, and cannot ("),
        ("raise ValueError('numpy.dtype size changed')", "CuPy cannot be imported (ValueError: numpy.dtype"),
    ],
)
def test_workers_whose_cupy_cannot_be_imported_end_in_a_sentence(tmp_path, fault, said):
    (tmp_path / "cupy.py").write_text(fault)
    site = ClusterSection(kind="slurm", cores=1, gpus=1, environment={"PYTHONPATH": str(tmp_path)})
    lines = JobQueue(site).options()["job_script_prologue"]
    script = "\n".join([*lines, "echo a worker"])  # type: ignore[misc]
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert ended.returncode == 1 and not ended.stdout
    assert ended.stderr.startswith(f"error: {said}") and ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("lacking", "named"), [("dask_cuda", "the cuda cluster needs dask-cuda"), ("cupy", "GPUs need CuPy")]
)
def test_cuda_without_its_packages(monkeypatch: pytest.MonkeyPatch, lacking: str, named: str) -> None:
    """CuPy is named first, by which GPUs are counted: it brings dask-cuda along."""
    without(monkeypatch, "dask_cuda")
    if lacking == "cupy":
        without(monkeypatch, "cupy")
    else:
        monkeypatch.setattr("pipeline.running.clusters.cuda._device_count", lambda: 1)
    with pytest.raises(InputError, match=rf"{named} .* pip install -e '\.\[cuda13\]'"):
        Cuda().open(DEMAND).__enter__()


@pytest.mark.nvrtc
def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    if cupy.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr("pipeline.running.clusters.cuda._cluster_class", lambda: None)
    with pytest.raises(InputError, match="no usable GPU on this machine"), Cuda().open(DEMAND):
        pass


def test_slurm_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "dask_jobqueue")
    with pytest.raises(InputError, match=r"pip install -e '\.\[slurm\]'"):
        JobQueue(ClusterSection(kind="slurm")).open(DEMAND).__enter__()


def test_workers_know_their_threads_and_allocator() -> None:
    site = ClusterSection(kind="slurm", cores=16, directives=("--gpus=1",), prologue=("module load cuda",))
    options = JobQueue(site).options()
    assert "export NUMBA_NUM_THREADS=16" in options["job_script_prologue"]
    assert "export MALLOC_MMAP_MAX_=0" in options["job_script_prologue"]
    assert options["job_script_prologue"][-2] == "module load cuda"
    assert options["job_extra_directives"] == ["--gpus=1"]
    assert options["worker_extra_args"][:4] == ["--nthreads", "1", "--resources", "device=1"]

    assert not REUSING.keys() & worker_environment(4, "cuda").keys()
    assert worker_environment(4, "cpu").items() > REUSING.items()


def settings() -> dict[str, str | None]:
    threads = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {name: os.environ.get(name) for name in (*threads, *REUSING)}


def test_local_workers_have_one_task_thread_and_a_share_of_the_cores() -> None:
    """The environment of this process is its own, also after a worker was replaced."""
    before = settings()
    with Local().open(Demand(tasks=1, memory=0)) as client:
        assert isinstance(client, Client)
        (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
        assert (worker["nthreads"], worker["resources"]) == (1, {"device": 1})
        assert worker["host"] == "127.0.0.1"
        found = client.submit(settings).result()
        assert (found["NUMBA_NUM_THREADS"], found["OMP_NUM_THREADS"]) == (str(CPU_COUNT), str(CPU_COUNT))
        assert (found["OPENBLAS_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("1", "1")
        assert found.items() > REUSING.items()
        assert settings() == before
        client.restart_workers(list(client.scheduler_info(n_workers=-1)["workers"]))
        assert client.submit(settings, pure=False).result().items() > REUSING.items()
    assert settings() == before


def test_a_machine_without_loopback_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that starts workers has no part in it."""

    def unreachable(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("socket.create_connection", unreachable)
    with pytest.raises(InputError, match=r"127\.0\.0\.1 .*Network is unreachable.*ip link set lo up"):
        check_loopback()

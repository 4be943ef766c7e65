"""Workers that own several GPUs, without any: what they see, what they refuse, and lost ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import toy_stages as toys

from pipeline import InputError, Outcome, Place, Store, Workflow, plan, run
from pipeline.running.clusters import Demand, Devices
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.clusters.hosts import command
from pipeline.running.clusters.local import Local, worker_environment
from pipeline.running.clusters.remote import workers_of_gpus
from pipeline.running.clusters.section import ClusterSection, Workers
from pipeline.running.graph import _Works
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.lifetime import lost_gpu
from pipeline.worker.sources import Sources
from pipeline.worker.task import _check_gpus
from pipeline.worker.work import RunContext
from stages.base.gpus import GPUS_PER_WORKER, gpus_per_worker, sharing
from stages.shared.costs import TimeSlices

GB = 10**9
LATTICE = (32, 32, 32, 48)
SHOW = """
import json, os, sys
print(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[-1]]))
"""


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, ["0,1", "2,3"]),
        ("7,5,3,1", ["7,5", "3,1"]),
        ("GPU-a,GPU-b,GPU-c", ["GPU-a,GPU-b"]),
        ("0,1,2,3,4,5", ["0,1", "2,3"]),
    ],
)
def test_each_worker_of_a_job_sees_gpus_of_its_own(tmp_path, visible, seen):
    (tmp_path / "show.py").write_text(SHOW)
    line = workers_of_gpus(f"{sys.executable} {tmp_path}/show.py", "job", 2, gpus_per_worker=2)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    workers = sorted((json.loads(each) for each in done.stdout.splitlines()), key=lambda each: each[1])
    assert workers == [[devices, f"job-{number}"] for number, devices in enumerate(seen)]


def test_hosts_and_jobs_with_four_gpus_have_two_workers_of_two() -> None:
    site = ClusterSection(kind="ssh", hosts=("node",), gpus=4, gpus_per_worker=2, cores=8)
    line = command(site, "node", "tls://h:1", {})
    assert site.each == 2
    assert "export NUMBA_NUM_THREADS=4; " in line and f"export {GPUS_PER_WORKER}=2; " in line
    assert "set -- 0 1; IFS=,; for device in ${CUDA_VISIBLE_DEVICES:-0,1,2,3}" in line
    alone = command(
        ClusterSection(kind="ssh", hosts=("node",), gpus=4, gpus_per_worker=4), "node", "tls://h:1", {}
    )
    assert f"export {GPUS_PER_WORKER}=4; " in alone and "CUDA_VISIBLE_DEVICES" not in alone

    site = ClusterSection(
        kind="slurm", gpus=4, gpus_per_worker=2, gpu_memory="80GB", workers=Workers(min=0, max=6)
    )
    assert site.devices == Devices(12, 80 * GB, 2, 4)
    assert site.devices.workers == 6

    assert GPUS_PER_WORKER not in worker_environment(2, "cpu")
    assert worker_environment(2, "cuda")[GPUS_PER_WORKER] == "1"
    assert worker_environment(2, "cuda", 4)[GPUS_PER_WORKER] == "4"


class FakeCluster:
    """As dask-cuda makes specifications: each worker sees all GPUs, its own first."""

    def __init__(self, visible: list[str]) -> None:
        self.cuda_visible_devices = [int(name) if name.isdecimal() else name for name in visible]
        self.worker_spec: dict[Any, Any] = {}

    def new_worker_spec(self) -> dict[Any, Any]:
        name = next(each for each in self.cuda_visible_devices if each not in self.worker_spec)
        at = self.cuda_visible_devices.index(name)
        rotated = self.cuda_visible_devices[at:] + self.cuda_visible_devices[:at]
        return {name: {"options": {"env": {"CUDA_VISIBLE_DEVICES": ",".join(map(str, rotated))}}}}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A machine with four GPUs of 80 GB, all with access to each other; `started` notes what is asked for."""
    pytest.importorskip("cupy")
    facts = SimpleNamespace(memory=[80 * GB] * 4, peers=True, asked=[], installed=True)
    runtime = SimpleNamespace(
        deviceCanAccessPeer=lambda one, other: facts.peers,
        getDeviceProperties=lambda number: {"totalGlobalMem": facts.memory[number], "name": b"a GPU"},
    )

    @contextmanager
    def noted(
        cluster: Any, options: dict[str, Any], environment: dict[str, str], *_: object
    ) -> Iterator[Any]:
        facts.asked.append((cluster, options, environment))
        yield None

    monkeypatch.setattr("pipeline.running.clusters.cuda.started", noted)
    monkeypatch.setattr("pipeline.running.clusters.cuda._cluster_class", lambda: FakeCluster)
    monkeypatch.setattr("pipeline.running.clusters.cuda._device_count", lambda: len(facts.memory))
    monkeypatch.setattr("stages.base.gpus.find_spec", lambda name: object() if facts.installed else None)
    monkeypatch.setattr("cupy.cuda.runtime", runtime)
    monkeypatch.setitem(sys.modules, "cupy.cuda.runtime", runtime)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield facts


def opened(machine: Any, cluster: Cuda, tasks: int = 9) -> tuple[Any, dict[str, Any], dict[str, str]]:
    with cluster.open(Demand(tasks, 0)):
        pass
    return machine.asked[-1]


@pytest.mark.nvrtc
def test_workers_of_a_machine_see_their_own_gpus(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, options, environment = opened(machine, Cuda(gpus_per_worker=2))
    assert options["n_workers"] == 2 and options["CUDA_VISIBLE_DEVICES"] == ["0", "2"]
    assert environment[GPUS_PER_WORKER] == "2"
    cluster = kind(options["CUDA_VISIBLE_DEVICES"])
    first = cluster.new_worker_spec()
    cluster.worker_spec.update(first)
    specs = {**first, **cluster.new_worker_spec()}
    assert {name: each["options"]["env"] for name, each in specs.items()} == {
        0: {"CUDA_VISIBLE_DEVICES": "0,1"},
        2: {"CUDA_VISIBLE_DEVICES": "2,3"},
    }
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-d,GPU-c,GPU-b,GPU-a")
    kind, options, _ = opened(machine, Cuda(gpus_per_worker=2), tasks=1)
    assert options["n_workers"] == 1 and options["CUDA_VISIBLE_DEVICES"] == ["GPU-d", "GPU-b"]
    (spec,) = kind(["GPU-d", "GPU-b"]).new_worker_spec().values()
    assert spec["options"]["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-d,GPU-c"
    _, options, environment = opened(machine, Cuda())
    assert options["n_workers"] == 4 and "CUDA_VISIBLE_DEVICES" not in options
    assert environment[GPUS_PER_WORKER] == "1"
    assert Cuda(gpus_per_worker=2).devices == Devices(4, 80 * GB, 2, 4)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("facts", "cluster", "message"),
    [
        (
            {},
            Cuda(gpus_per_worker=3),
            "gpus_per_worker=3 does not divide the 4 GPUs of this machine: take 1 or",
        ),
        (
            {},
            Cuda(3, gpus_per_worker=2),
            "workers=3, but this machine has 4 GPUs, 2 workers of 2 GPUs: take 1 to 2 workers",
        ),
        ({}, Cuda(0), "workers=0, but this machine has 4 GPUs, one worker each: take 1 to 4 workers"),
        ({"peers": False}, Cuda(gpus_per_worker=2), "GPU 0 cannot read the memory of GPU 1"),
        (
            {"memory": [80 * GB, 40 * GB] * 2},
            Cuda(gpus_per_worker=2),
            "must be of one size, got 0: 80 GB, 1: 40",
        ),
        (
            {"installed": False},
            Cuda(gpus_per_worker=2),
            "several GPUs needs cuda-bindings, which is not inst",
        ),
    ],
)
def test_what_cannot_be_is_said(machine: Any, facts: dict[str, Any], cluster: Cuda, message: str) -> None:
    vars(machine).update(facts)
    with pytest.raises(InputError, match=re.escape(message)), cluster.open(Demand(4, 0)):
        pass
    with pytest.raises(InputError, match=re.escape(message)):
        assert cluster.devices
    assert not machine.asked


@pytest.mark.parametrize("wanted", ["0", "two", "-1", "1.5", ""])
def test_a_number_of_gpus_that_is_none(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv(GPUS_PER_WORKER, wanted)
    with pytest.raises(InputError, match=f"{GPUS_PER_WORKER} must be the number of GPUs .* got '{wanted}'"):
        gpus_per_worker()
    with sharing(TimeSlices(LATTICE), "cpu"):
        pass


def test_what_an_inner_stage_makes_lies_as_its_own_word_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all GPUs, or on one within another's; what lies on one already stays there."""
    monkeypatch.setenv(GPUS_PER_WORKER, "2")
    monkeypatch.setattr("stages.base.gpus.visible_gpus", lambda: (0, 1))
    blocks: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        blocks.append(name)
        yield
        blocks.append(f"{name} ends")

    outer = SimpleNamespace(spread=lambda: noted("outer"), gather=lambda: noted("one"))
    inner = SimpleNamespace(spread=lambda: noted("inner"), gather=lambda: pytest.fail("nothing is inside"))
    with ExitStack() as stack:
        for spread in (None, outer, None, None, inner):
            stack.enter_context(sharing(spread, "cuda"))
        blocks.append("work")
    assert blocks == ["outer", "one", "inner", "work", "inner ends", "one ends", "outer ends"]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("cudaErrorECCUncorrectable: uncorrectable ECC error encountered", True),
        ("CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", True),
        ("the CUDA driver answered CUDA_ERROR_NVLINK_UNCORRECTABLE", True),
        ("cudaErrorDevicesUnavailable: all CUDA-capable devices are busy or unavailable", True),
        ("the CUDA driver answered CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", True),
        ("the CUDA driver answered CUDA_ERROR_CONTAINED", True),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", False),
        ("the CUDA driver answered CUDA_ERROR_INVALID_VALUE", False),
        ("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled", False),
    ],
)
def test_errors_of_a_gpu_that_is_lost(text: str, lost: bool) -> None:
    assert lost_gpu(RuntimeError(text)) == lost
    outer = ValueError("a stage's own")
    outer.__cause__ = RuntimeError(text)
    assert lost_gpu(outer) == lost


def test_a_chunk_whose_gpu_is_lost_is_computed_again_by_another_process(store, executed, tmp_path):
    import toy_gpu_stages

    w = Workflow("lost")
    over = {"config": ["a", "b"]}
    w.add(toy_gpu_stages.losing, place=Place(over=over), folder=str(tmp_path))
    outcome: Outcome = run(plan(w, store), store, cluster=Local(workers=1))
    assert outcome.states["losing"] == {"done": 2}, outcome.table()
    assert executed.new() == {"losing": 3}


def test_each_stage_has_the_lattice_that_it_works_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was computed before: the lattice of an input is that of its own stage alone."""
    w, plain = toys.fields("a", "lattices")
    made = w.add(toys.Costing(toys.setup, device_memory=1, shares=TimeSlices(LATTICE)), plain)
    smaller = toys.Costing(toys.with_setup, device_memory=1, shares=TimeSlices((4, 4, 4, 8)))
    w.add(smaller, made, place=Place(over={"noise": range(1)}))
    (chunk,) = (chunk for chunk in plan(w, store).missing if chunk.node.name == "with_setup")
    blocks: list[tuple[Any, str]] = []

    @contextmanager
    def noted(shares: Any, backend: str) -> Iterator[None]:
        blocks.append((shares.extents, "in"))
        yield
        blocks.append((shares.extents, "out"))

    monkeypatch.setattr("pipeline.worker.evaluation.sharing", noted)
    run(plan(w, store).again([each.key for each in plan(w, store).missing if each != chunk]), store)
    work = _Works("cpu").to_compute(chunk)
    context = RunContext(store, "run", "cpu", 0, Sources((), ""))
    Evaluation([work], context, lambda event: None).compute(work)
    assert blocks == [(LATTICE, "in"), (LATTICE, "out"), ((4, 4, 4, 8), "in"), ((4, 4, 4, 8), "out")]


@pytest.mark.parametrize(
    ("told", "visible", "planned", "said"),
    [
        ("1", 4, 2, "for 2 GPUs per worker, but .* started with 1: export QUARKLINE_GPUS_PER_WORKER=2 where"),
        ("2", 1, 1, "number of GPUs that share a lattice, 1 to 1 here, got 2"),
    ],
)
def test_a_worker_with_too_few_gpus_says_so(store, monkeypatch, told, visible, planned, said):
    runtime = SimpleNamespace(getDeviceCount=lambda: visible)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(runtime=runtime))  # type: ignore[arg-type]
    monkeypatch.setenv(GPUS_PER_WORKER, told)
    w, node = toys.fields("a", "few")
    (chunk,) = plan(w, store).missing
    work = replace(_Works("cuda").to_compute(chunk), node=_Works("cuda")._node(node, "cuda"))
    with pytest.raises(InputError, match=said):
        _check_gpus(work, RunContext(store, "run", "cuda", 0, Sources((), ""), gpus_per_worker=planned))

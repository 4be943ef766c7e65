"""Workers that own two GPUs: what they share, what records say of each, what is left when one is killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline import InputError, Outcome, Place, Store, Workflow, plan, run
from pipeline.running.clusters.cuda import Cuda

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("two_gpus")]

CONFIGS = list("abcdef")
LEFT = 3 << 30
"""Bytes that other processes may take while a test waits, less than a killed worker held on each GPU."""


def workers_of_two() -> Cuda:
    """One worker, of two of this machine's GPUs."""
    return Cuda(workers=1, gpus_per_worker=2)


def computed(store: Store, folder: Path, victim: str = "", cluster: Cuda | None = None) -> Outcome:
    import toy_gpu_stages as gpu

    w = Workflow("shared")
    w.add(gpu.shared, place=Place(over={"config": CONFIGS}), folder=str(folder), victim=victim)
    return run(plan(w, store, backend="cuda"), store, cluster=cluster or workers_of_two())


def free() -> list[int]:
    import cupy

    found = []
    for gpu in range(2):
        with cupy.cuda.Device(gpu):
            found.append(cupy.cuda.Device().mem_info[0])
    return found


def test_what_a_worker_of_two_gpus_makes_lies_on_both(store: Store, tmp_path: Path) -> None:
    import toy_gpu_stages as gpu

    assert computed(store, tmp_path).exit_status == 0
    record = store.record("shared", next(iter(store.keys("shared"))))
    assert record["statistics"]["gpus"] == 2 and record["device"].startswith("2 x ")
    each, whole = record["gpus"], 8 * gpu.NUMBERS
    assert len(each) == 2 and len({facts["gpu"] for facts in each}) == 2
    assert record["device_bytes"] == max(facts["device_bytes"] for facts in each)
    assert all(whole // 2 <= facts["device_bytes"] < 0.7 * whole for facts in each)
    assert record["joules"] == pytest.approx(sum(facts["joules"] for facts in each), rel=0.5, abs=100.0)
    assert record["expected"]["device_memory"] == whole // 2


def test_keys_and_results_do_not_depend_on_gpus_of_a_worker(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    for place, cluster in ((store, workers_of_two()), (other, Cuda())):
        assert computed(place, tmp_path, cluster=cluster).exit_status == 0
    assert store.keys("shared") == other.keys("shared")
    for key in store.keys("shared"):
        assert (store.load("shared", key)["values"] == other.load("shared", key)["values"]).all()


@pytest.mark.faults
def test_a_worker_that_is_killed_loses_its_chunk_and_leaves_no_memory(store, executed, tmp_path):
    before = free()
    outcome = computed(store, tmp_path, victim="c")
    assert outcome.states["shared"] == {"done": len(CONFIGS)}, outcome.table()
    assert executed.new() == {"shared": len(CONFIGS) + 1}
    deadline = time.monotonic() + 30
    while (lost := max(b - a for b, a in zip(before, free(), strict=True))) > LEFT:
        assert time.monotonic() < deadline, f"{lost} bytes are left on a GPU"
        time.sleep(0.5)


@pytest.mark.faults
def test_a_chunk_whose_gpu_is_lost_is_computed_by_another_worker(store, executed, tmp_path):
    import toy_gpu_stages as gpu

    w = Workflow("lost")
    w.add(gpu.losing, place=Place(over={"config": ["a", "b"]}), folder=str(tmp_path))
    outcome = run(plan(w, store, backend="cuda"), store, cluster=workers_of_two())
    assert outcome.states["losing"] == {"done": 2}, outcome.table()
    assert executed.new() == {"losing": 3}


@pytest.mark.faults
def test_a_kernel_that_destroys_the_context_of_the_second_gpu_fails_its_chunk_alone(store: Store) -> None:
    import toy_gpu_stages as gpu

    w = Workflow("crash")
    w.add(gpu.crashing, place=Place(over={"config": CONFIGS}), bad=("c",), gpu=1)
    outcome = run(plan(w, store, backend="cuda"), store, cluster=workers_of_two())
    assert outcome.states["crashing"] == {"done": len(CONFIGS) - 1, "failed": 1}, outcome.table()
    assert "llegal" in outcome.failures[0].error


def test_gpus_of_a_worker_divide_those_of_the_machine(store: Store, tmp_path: Path) -> None:
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    with pytest.raises(InputError, match=rf"gpus_per_worker={count + 1} does not divide the {count} GPUs"):
        computed(store, tmp_path, cluster=Cuda(gpus_per_worker=count + 1))

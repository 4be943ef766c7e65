"""What a plan takes of a GPU's memory, and what a chunk's work took."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import toy_stages as toys

from pipeline import InputError, Place, Plan, Store, Workflow, plan, run
from pipeline.running.clusters import Devices
from pipeline.running.shortage import device_memory, device_projection, shortage
from pipeline.worker.memory import DevicePool


@dataclass(frozen=True)
class TwoDevices:
    """A cluster that cannot be opened, with two GPUs; None: of unknown memory."""

    memory: int | None
    backend: str = "cpu"
    memory_limit: None = None

    @property
    def devices(self) -> Devices | None:
        return Devices(2, self.memory) if self.memory else None

    def open(self, demand: Any) -> Any:
        return nullcontext(pytest.fail("a plan that does not fit must not start a cluster"))


def planned(store: Store, configs: str = "abcd", solving: int = 6_000_000_000) -> Plan:
    w = Workflow("devices")
    field = w.add(toys.field, place=Place(over={"config": list(configs)}))
    made = w.add(toys.Costing(toys.setup, device_memory=10_000_000_000), field)
    solver = toys.Costing(toys.with_setup, device_memory=solving)
    w.add(solver, made, place=Place(over={"noise": range(3)}))
    return plan(w, store)


def test_each_device_holds_its_share_of_what_stays_and_one_task(store: Store) -> None:
    assert device_memory(planned(store), Devices(1, 200_000_000_000)) == 46_000_000_000
    assert device_memory(planned(store), Devices(2, 200_000_000_000)) == 26_000_000_000
    assert device_memory(planned(store, "a"), Devices(2, 200_000_000_000)) == 16_000_000_000


def test_what_stays_is_bounded_by_its_share_of_the_device(store: Store) -> None:
    assert device_memory(planned(store), Devices(1, 50_000_000_000)) == 26_000_000_000
    assert device_memory(planned(store), Devices(1, 20_000_000_000)) == 16_000_000_000


def test_a_workflow_without_figures_has_no_projection(store: Store) -> None:
    w = Workflow("plain")
    w.add(toys.field, place=Place(over={"config": ["a"]}))
    assert device_projection(plan(w, store), TwoDevices(50_000_000_000)) == ""


def test_what_unknown_devices_need_at_least(store: Store) -> None:
    unknown = TwoDevices(None, backend="cuda")
    line = "projected: at least 14.90 GiB on each GPU, whose memory is not known here"
    assert device_projection(planned(store), unknown) == line
    assert shortage(planned(store), unknown) == ""
    assert device_projection(planned(store), TwoDevices(None)) == ""


def test_a_plan_beyond_a_device_is_refused_before_any_work(store: Store) -> None:
    fits = TwoDevices(100_000_000_000)
    assert shortage(planned(store), fits) == ""
    assert device_projection(planned(store), fits) == "projected: 24.21 GiB on each GPU of 93.13 GiB"
    message = (
        "a task of node 'with_setup' needs 19.00 GiB of GPU memory (projected, with what stays there), but a "
        "GPU of this machine has 18.63 GiB: make its blocks or chunks smaller"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        run(planned(store, solving=10_400_000_000), store, cluster=TwoDevices(20_000_000_000))


def test_resident_results_of_one_task_are_there_together(store: Store) -> None:
    w = Workflow("two")
    configs = {"config": ["a", "b"]}
    field, other = (
        w.add(toys.field, place=Place(name=f"field{k}", over=configs), scale=float(k)) for k in (1, 2)
    )
    first = w.add(toys.Costing(toys.setup, device_memory=10_000_000_000), field)
    small = toys.Costing(toys.setup, device_memory=4_000_000_000)
    second = w.add(small, other, place=Place(name="other"))
    w.add(toys.Costing(toys.with_two_setups, device_memory=1_000_000_000), first, second)
    made = plan(w, store)
    assert device_memory(made, None) == 15_000_000_000
    assert device_memory(made, Devices(2, 20_000_000_000)) == 15_000_000_000


def test_a_node_says_what_would_fit(store: Store) -> None:
    w = Workflow("fits")
    field = w.add(toys.field, place=Place(over={"config": ["a"]}))
    made = w.add(toys.Costing(toys.setup, device_memory=10_000_000_000), field)
    solver = toys.Costing(
        toys.with_setup,
        memory=7,
        device_memory=9_000_000_000,
        remedy=lambda room, on_device: f"{on_device}: {room // 1_000_000_000} vectors fit",
    )
    w.add(solver, made, place=Place(over={"noise": range(3)}))
    text = shortage(plan(w, store), TwoDevices(15_000_000_000))
    assert text.endswith("but a GPU of this machine has 13.97 GiB: True: 4 vectors fit")


@dataclass
class FakePool:
    """Grows by what is asked for, until it is freed."""

    total: int = 0
    asked: list[int] = field(default_factory=list)

    def malloc(self, size: int) -> int:
        self.asked.append(size)
        self.total += size
        return size

    def total_bytes(self) -> int:
        return self.total

    def free_all_blocks(self) -> None:
        self.total = 0


def test_the_largest_size_of_the_pool_is_remembered() -> None:
    fake = FakePool()
    pool = DevicePool(fake)
    assert pool.malloc(30) == 30
    pool.malloc(50)
    pool.release_unused()
    pool.malloc(10)
    assert pool.bytes == 80
    pool.restart()
    assert pool.bytes == 10

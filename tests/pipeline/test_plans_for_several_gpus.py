"""Plans and forecasts for workers that own several GPUs: memory of each, and how many are best."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import toy_stages as toys

from pipeline import Cost, InputError, Place, Plan, Store, Workflow, plan, run
from pipeline.declare.node import Pass
from pipeline.reading.forecast.model import Model
from pipeline.reading.forecast.samples import Machine
from pipeline.running.clusters import Devices
from pipeline.running.memory_advice import TWICE, device_memory, device_projection, gpus_advice, shortage
from stages.shared.costs import TimeSlices

GB, PAGE = 10**9, 2 << 20
LATTICE = (32, 32, 32, 48)


def test_cost_of_a_lattice_on_several_gpus() -> None:
    """Slices are whole, 20 = 7 + 7 + 6, pages too; what is small, or on no lattice, lies on one."""
    terms = {"links": 20 * 10 * PAGE, "blocks": 10 * PAGE + 1, "coefficients": 2 * PAGE}
    cost = Cost(device_memory=sum(terms.values()) + 40 * PAGE, terms=terms, shares=TimeSlices((4, 4, 4, 20)))
    each = cost.on_each(3)
    assert each.terms == {"links": 70 * PAGE, "blocks": 4 * PAGE, "coefficients": 2 * PAGE}
    assert each.device_memory == sum(each.terms.values()) + 14 * PAGE
    assert cost.on_each(1) is cost
    unspread = Cost(device_memory=GB)
    assert unspread.on_each(3) is unspread


@dataclass(frozen=True)
class Node:
    """A cluster that cannot be opened, of GPUs of one machine."""

    memory: int | None
    gpus_per_worker: int = 1
    count: int = 4
    backend: str = "cuda"
    memory_limit: None = None

    @property
    def devices(self) -> Devices | None:
        return Devices(self.count, self.memory, self.gpus_per_worker, self.count) if self.memory else None

    def open(self, demand: Any) -> Any:
        return nullcontext(pytest.fail("a plan that does not fit must not start a cluster"))


def planned(store: Store, configs: int = 8, extents: tuple[int, int, int, int] | None = LATTICE) -> Plan:
    """Tasks of 30 GB on a lattice."""
    w = Workflow("shared")
    stage = toys.Costing(toys.field, device_memory=30 * GB, shares=TimeSlices(extents) if extents else None)
    w.add(stage, place=Place(over={"config": [f"c{number}" for number in range(configs)]}))
    return plan(w, store, backend="cuda")


def test_a_plan_that_needs_more_gpus_per_worker_says_how_many(store: Store) -> None:
    made = planned(store)
    short = shortage(made, Node(20 * GB))
    assert short and short.text.endswith(
        "make its blocks or chunks smaller; or use 2 GPUs per worker (--gpus-per-worker 2)"
    )
    short = shortage(made, Node(10 * GB, 2))
    assert short and "needs 15 GB of GPU memory on each of 2 GPUs (projected" in short.text
    assert short.text.endswith("; or use 4 GPUs per worker (--gpus-per-worker 4)")
    assert shortage(made, Node(20 * GB, 2)) is None
    short = shortage(made, Node(7 * GB))
    assert short and "per worker" not in short.text
    short = shortage(planned(store, extents=None), Node(20 * GB))
    assert short and "per worker" not in short.text


def test_projection_is_that_of_each_gpu(store: Store) -> None:
    made = planned(store)
    head = device_projection(made, Node(20 * GB, 2)).splitlines()[0]
    assert head == "projected: 15 GB on each GPU of 20 GB, 2 of which share a lattice"
    head = device_projection(made, Node(None, 4)).splitlines()[0]
    assert head.startswith("projected: at least 7.5 GB on each GPU, 4 of which share a lattice, whose memory")
    assert device_memory(made, Devices(4, 20 * GB, 2)) == 15 * GB // PAGE * PAGE + PAGE

    assert gpus_advice(planned(store), Node(80 * GB, count=1)) is None
    assert gpus_advice(planned(store), Node(None)) is None
    assert gpus_advice(planned(store, extents=None), Node(80 * GB)) is None

    made = planned(store, extents=(8, 8, 8, 8))
    message = (
        "8 time slices cannot be spread over 4 GPUs: hops reach 3 slices, and each GPU must hold so many; "
    )
    with pytest.raises(InputError, match=f"{message}take 2 GPUs or fewer"):
        run(made, store, cluster=Node(80 * GB, 4))


@pytest.mark.parametrize(
    ("configs", "count", "memory", "said"),
    [
        (
            8,
            4,
            80,
            "1 is the least that fits, and the fastest: 8 tasks can run side by side on 4 GPUs, and two",
        ),
        (8, 4, 20, "2 is the least that fits, and the fastest (--gpus-per-worker 2): 8 tasks"),
        (2, 4, 80, "1 is the least that fits, 2 the fastest (--gpus-per-worker 2): 2 tasks"),
        (1, 4, 80, "1 is the least that fits, 4 the fastest (--gpus-per-worker 4): 1 task can"),
        (1, 8, 5, "8 is the least that fits, and the fastest (--gpus-per-worker 8): 1 task can"),
    ],
)
def test_the_fastest_number_of_gpus_per_worker(
    store: Store, configs: int, count: int, memory: int, said: str
) -> None:
    """Many tasks are best served by the fewest GPUs each; few leave GPUs to each other."""
    advice = gpus_advice(planned(store, configs), Node(memory * GB, count=count))
    assert advice and advice.text.startswith(f"GPUs per worker: {said}")
    assert advice.text.endswith(f"two GPUs on one lattice are {TWICE:g} times as fast as one")
    assert f"{advice.least} is the least" in advice.text


def test_forecasts_know_the_gpus_of_a_worker() -> None:
    """Their number is in the name of the device; without records two are `TWICE` as fast as one."""
    one, two = (Machine.named("cuda", name) for name in ("NVIDIA H200", "2 x NVIDIA H200"))
    assert (one.gpus, two.gpus) == (1, 2)
    assert Machine.named("cpu", "2 x EPYC, 4 threads").gpus == 1
    assert (one._replace(number=2), two._replace(number=1)) == (two, one)
    assert [str(two), str(one)] == ["2 x NVIDIA H200", "NVIDIA H200"]
    assert str(two._replace(number=4)) == "4 x NVIDIA H200"
    assert two.speed / one.speed == pytest.approx(TWICE)
    passes = [Pass("dslash", 1000, 1e9)]
    known = Model(())
    ratio = known.seconds("s", one, passes, False).value / known.seconds("s", two, passes, False).value
    assert ratio == pytest.approx(TWICE)

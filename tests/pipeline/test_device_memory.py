"""What a plan takes of a GPU's memory, and what a chunk's work took."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import toy_stages as toys

from pipeline import InputError, Place, Plan, Store, Workflow, plan, run
from pipeline.planning.workflow import Economies
from pipeline.running.clusters import Devices
from pipeline.running.clusters.local import Local
from pipeline.running.memory_advice import CONTEXT, device_memory, device_projection, device_terms, shortage
from pipeline.worker.memory import DevicePool

GB = 10**9


@dataclass(frozen=True)
class TwoDevices:
    """A cluster that cannot be opened, with two GPUs; None: of unknown memory."""

    memory: int | None
    backend: str = "cpu"
    gpus_per_worker: int = 1
    memory_limit: None = None

    @property
    def devices(self) -> Devices | None:
        return Devices(2, self.memory) if self.memory else None

    def open(self, demand: Any) -> Any:
        return nullcontext(pytest.fail("a plan that does not fit must not start a cluster"))


def planned(store: Store, configs: str = "abcd", solving: int = 6_000_000_000) -> Plan:
    w, field = toys.fields(configs, "devices")
    made = w.add(toys.Costing(toys.setup, device_memory=10_000_000_000), field)
    solver = toys.Costing(toys.with_setup, device_memory=solving)
    w.add(solver, made, place=Place(over={"noise": range(3)}))
    return plan(w, store)


def test_each_device_holds_its_share_of_what_stays_and_one_task(store: Store) -> None:
    """What stays is bounded by its share of the device; two operators are kept where they fit."""
    assert device_memory(planned(store), Devices(1, 200_000_000_000)) == 46_000_000_000
    assert device_memory(planned(store), Devices(2, 200_000_000_000)) == 26_000_000_000
    assert device_memory(planned(store, "a"), Devices(2, 200_000_000_000)) == 16_000_000_000

    assert device_memory(planned(store), Devices(1, 50_000_000_000)) == 31_000_000_000
    assert device_memory(planned(store), Devices(1, 20_000_000_000)) == 16_000_000_000

    assert shortage(planned(store, solving=15 * GB), TwoDevices(26 * GB)) is None
    assert device_memory(planned(store, solving=15 * GB), Devices(2, 26 * GB)) == 26 * GB - CONTEXT


def test_what_unknown_devices_need_at_least(store: Store) -> None:
    w = Workflow("plain")
    w.add(toys.field, place=Place(over={"config": ["a"]}))
    assert device_projection(plan(w, store), TwoDevices(50_000_000_000)) == ""

    unknown = TwoDevices(None, backend="cuda")
    line = (
        "projected: at least 16 GB on each GPU, whose memory is not known here: "
        "--set cluster.gpu_memory=80GB says it"
    )
    assert device_projection(planned(store), unknown).splitlines()[0] == line
    assert shortage(planned(store), unknown) is None
    assert device_projection(planned(store), TwoDevices(None)) == ""


def test_a_plan_beyond_a_device_is_refused_before_any_work(store: Store) -> None:
    fits = TwoDevices(100_000_000_000)
    assert shortage(planned(store), fits) is None
    assert device_projection(planned(store), fits).splitlines() == [
        "projected: 26 GB on each GPU of 100 GB",
        "  on the GPU                    of              GB  share",
        "  other                         setup       10.000   38 %",
        "  kept of other configurations              10.000   38 %",
        "  other                         with_setup   6.000   23 %",
    ]
    message = (
        "a task of node 'with_setup' needs 20.4 GB of GPU memory (projected, with what stays there: other "
        "10.4 GB, other 10 GB), but a GPU has 20 GB, 0.7 GB of them for CUDA itself: make its blocks or "
        "chunks smaller"
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


def grouped(block: int = 8, kept: int = 10, modes: bool = True) -> Workflow:
    """A workflow whose GPU holds what is kept, and fields of a block, in GB; it can be smaller in all."""
    w, field = toys.fields("a", "fits")
    made = w.add(
        toys.Costing(toys.setup, device_memory=kept * GB, terms={"links": kept * GB - 5, "index": 3}), field
    )
    costs = {"memory": block * GB, "device_memory": (block + modes) * GB}
    solver = toys.Costing(toys.with_setup, **costs, terms={f"N = {block}": block * GB})
    w.add(solver, made, place=Place(over={"noise": range(3)}))
    values = {"solves.block": range(block - 1, 0, -1), "kept": range(kept - 1, 4, -1), "modes": (None,)}

    def smaller(changes: Any) -> Workflow:
        if changes.get("kept") == 6:
            raise InputError("`kept` 6 is no number")
        options = {name.rpartition(".")[2]: value or False for name, value in changes.items()}
        return grouped(**{"block": block, "kept": kept, "modes": modes, **options})

    w.economies = Economies(values, smaller)
    return w


@pytest.mark.parametrize(
    ("memory", "said", "changes"),
    [
        (
            18,
            "`solves.block: 7`; or with `kept: 9`; or without `modes`",
            [{"solves.block": 7}, {"kept": 9}, {"modes": None}],
        ),
        (13, "`solves.block: 2`", [{"solves.block": 2}]),
        (10, "`solves.block: 1` and `kept: 8`", [{"solves.block": 1, "kept": 8}]),
        (9, "`solves.block: 1` and `kept: 7`", [{"solves.block": 1, "kept": 7}]),
        (8, "`solves.block: 2` and `kept: 5`", [{"solves.block": 2, "kept": 5}]),
        (
            6,
            "`solves.block: 1` and `kept: 5` and without `modes`",
            [{"solves.block": 1, "kept": 5, "modes": None}],
        ),
    ],
)
def test_what_would_fit(store: Store, memory: int, said: str, changes: list[dict[str, Any]]) -> None:
    """Each key alone, else several together; values that cannot be are passed over."""
    short = shortage(plan(grouped(), store), TwoDevices(memory * GB + CONTEXT))
    assert short and short.text.endswith(f"it fits with {said}") and list(short.remedies) == changes
    for each in changes:
        followed = plan(grouped().economies.workflow(each), store)  # type: ignore[union-attr]
        assert shortage(followed, TwoDevices(memory * GB + CONTEXT)) is None


def test_what_nothing_makes_fit_and_what_would_fit_a_host(store, monkeypatch):
    short = shortage(plan(grouped(), store), TwoDevices(5 * GB + CONTEXT))
    assert short and short.remedies == ()
    assert (
        "needs 19 GB of GPU memory (projected, with what stays there: links 10 GB, N = 8 8 GB, " in short.text
    )
    assert short.text.endswith(
        "no smaller block, chunk or precision makes it fit (6 GB at the least): take GPUs with more memory"
    )

    monkeypatch.setattr("pipeline.running.clusters.local.MEMORY_LIMIT", 4 * GB)
    short = shortage(plan(grouped(), store), Local())
    assert short and short.remedies == ({"solves.block": 4},)
    assert short.text.endswith(": it fits with `solves.block: 4`, or use a cluster with more memory")


def with_vectors(precision: float = 2.0, block: int = 4) -> Workflow:
    """Vectors of a precision, in the store once they are computed, and solves with them; sizes in GB."""
    w, field = toys.fields("a", "vectors")
    place = Place("vectors", over={"noise": range(2)})
    vectors = w.add(toys.Costing(toys.loops, device_memory=12 * GB), field, place=place, mass=precision)
    solving = toys.Costing(toys.correction, device_memory=(int(3 * precision) + block) * GB)
    w.add(solving, vectors, place=Place("solves"))
    values = {"precision": (1.0,), "block": (3, 2, 1)}
    w.economies = Economies(values, lambda changes: with_vectors(**{"block": block, **changes}))
    return w


def test_a_remedy_counts_what_would_be_computed_again(store: Store) -> None:
    """Vectors in another precision are others, for which there is no room; those there are in the store."""
    made = plan(with_vectors(), store)
    solves = made.again([chunk.key for chunk in made.missing if chunk.node.name == "solves"])
    short = shortage(solves, TwoDevices(9 * GB + CONTEXT))
    assert short and short.remedies == ({"block": 3},)
    enough = shortage(made, TwoDevices(12 * GB + CONTEXT))
    assert enough is None


def test_terms_are_the_whole_of_what_a_gpu_holds(store: Store) -> None:
    made = plan(grouped(), store)
    terms = device_terms(made, None)
    assert [(term.node, term.term, term.bytes) for term in terms] == [
        ("setup", "links", 10 * GB - 5),
        ("with_setup", "N = 8", 8 * GB),
        ("with_setup", "other", GB),
        ("setup", "index", 3),
        ("setup", "other", 2),
    ]
    assert sum(term.bytes for term in terms) == device_memory(made, None)

    w, field = toys.fields("a", "terms")
    with pytest.raises(InputError, match="of terms that are its device_memory or less"):
        w.add(toys.Costing(toys.setup, device_memory=5, terms={"links": 6}), field)


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

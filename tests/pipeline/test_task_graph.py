"""Tasks: fusion, batching, order, and what Dask is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import dask
import pytest
import toy_stages as toys
from distributed import Client
from distributed.protocol import deserialize, serialize
from distributed.scheduler import TaskPrefix

from pipeline import At, Chunks, Cost, Pass, Place, Plan, Resources, Store, Workflow, plan, run, stage
from pipeline.reading.forecast.schedule import schedule
from pipeline.running.clusters import Demand
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.local import default_workers
from pipeline.running.graph import RETRIES, TaskPlan, dask_graph, plan_tasks, widest_level
from pipeline.store.record import Record
from pipeline.worker.sources import Sources
from pipeline.worker.work import RunContext

SOURCES = Sources((), "")


def tasks_of(w: Workflow, store: Store) -> list[TaskPlan]:
    return plan_tasks(plan(w, store))


def describe(task: TaskPlan) -> list[str]:
    """`node first-config first-noise` of each chunk."""
    return [" ".join([c.node.name, *(str(v[0]) for v in c.coordinates.values())]) for c in task.chunks]


def assert_ordered(tasks: list[TaskPlan]) -> None:
    """Every task waits for earlier ones only: there is no cycle."""
    seen: set[str] = set()
    for task in tasks:
        assert set(task.after) <= seen
        seen.add(task.name)


def test_consumers_of_a_transient_chunk_are_one_task(store: Store) -> None:
    w, field = toys.fields()
    bulk = w.add(toys.bulk, field, place=Place(over={"noise": [0, 1]}))
    w.add(toys.first, bulk)
    w.add(toys.second, bulk)
    tasks = tasks_of(w, store)
    expected = [["field a"], ["first a 0", "second a 0"], ["first a 1", "second a 1"]]
    assert sorted(map(describe, tasks)) == expected
    assert_ordered(tasks)


def test_consumers_at_different_depths_stay_apart_so_that_there_is_no_cycle(store: Store) -> None:
    """`late` shares a transient chunk with `first`, on which it depends through a task of its own."""

    @stage(version="1", over=("config", "noise"))
    def late(bulk: toys.Bulk, mean: toys.Mean, *, at: At) -> toys.Loops: ...

    @stage(version="1", over=("config",))
    def average(loops: Chunks[toys.Loops], *, at: At) -> toys.Mean: ...

    w, field = toys.fields()
    bulk = w.add(toys.bulk, field, place=Place(over={"noise": [0, 1]}))
    mean = w.add(average, w.add(toys.first, bulk))
    w.add(late, bulk, mean)
    tasks = tasks_of(w, store)
    assert [len(task.chunks) for task in tasks] == [1] * 6
    assert_ordered(tasks)


def test_a_reduction_over_transient_chunks_does_not_swallow_other_consumers(store: Store) -> None:
    @stage(version="1")
    def overall(bulk: Chunks[toys.Bulk], *, at: At) -> toys.Mean: ...

    w, field = toys.fields("ab")
    bulk = w.add(toys.bulk, field, place=Place(over={"noise": [0, 1]}))
    w.add(toys.first, bulk)
    w.add(overall, bulk)
    assert [len(task.chunks) for task in tasks_of(w, store)] == [1] * 7


def test_tiny_chunks_are_batched_once_they_were_measured(store, compute):
    def many(configs: int) -> Workflow:
        w = Workflow("w")
        w.add(toys.field, place=Place(over={"config": [f"c{k}" for k in range(configs)]}))
        return w

    assert len(tasks_of(many(200), store)) == 200
    compute(many(3))
    planned = plan(many(203), store)
    assert planned.expected_seconds["field"] > 0
    batched = plan_tasks(replace(planned, expected_seconds={"field": 1e-3}))
    assert sum(len(task.chunks) for task in batched) == 200
    assert 10 <= len(batched) < 40


def test_configurations_are_finished_one_after_the_other(store: Store) -> None:
    w, field = toys.fields("abc")
    w.add(toys.mean, w.add(toys.loops, field, place=Place(over={"noise": [0, 1]}), mass=1.0))
    order = sorted(tasks_of(w, store), key=lambda task: -task.priority)
    each = ("loops {} 0", "loops {} 1", "field {}")
    expected = ["mean", *(text.format(config) for config in "abc" for text in each)]
    assert [describe(task)[0] for task in order] == expected


def test_sharers_of_a_resident_result_share_a_home(store: Store) -> None:
    w, field = toys.fields("ab")
    w.add(toys.with_setup, w.add(toys.setup, field), place=Place(over={"noise": [0, 1, 2]}))
    homes: dict[str, set[tuple[str, ...]]] = {}
    for task in tasks_of(w, store):
        homes.setdefault(" ".join(describe(task)[0].split()[:2]), set()).add(task.homes)
    assert homes["field a"] == {()}
    assert len(homes["with_setup a"]) == len(homes["with_setup b"]) == 1
    assert homes["with_setup a"] != homes["with_setup b"]


def test_where_a_node_has_no_chunk_those_of_its_name_tell_its_seconds(store, compute, monkeypatch):
    def two(vectors: range) -> Workflow:
        w, field = toys.fields()
        for mass, name in enumerate(("light", "strange"), start=1):
            w.add(toys.loops, field, place=Place(name=name, over={"noise": vectors}), mass=1.0 * mass)
        return w

    compute(two(range(2)))
    seconds = {"field": 1.0, "light": 8.0, "strange": 2.0}
    record_of = Record.of
    monkeypatch.setattr(
        Record, "of", lambda facts: replace(record_of(facts), seconds=seconds[str(facts["node"])])
    )
    assert plan(two(range(5, 9)), store).expected_seconds == seconds
    w, field = toys.fields()
    w.add(toys.loops, field, place=Place(name="charm", over={"noise": range(9, 11)}), mass=3.0)
    assert plan(w, store).expected_seconds["charm"] == 5.0
    seconds["light"] = -3.0  # the clock was set back
    assert plan(w, store).expected_seconds["charm"] == 2.0


def test_schedulers_know_durations_before_they_have_seen_any(store, compute, cluster):
    """Else a worker whose tasks count half a second each takes long ones from another that ends sooner."""
    w, field = toys.fields()
    compute(w)
    for mass, name in enumerate(("with-hyphen", "mine", "tiny"), start=1):
        w.add(toys.loops, field, place=Place(name=name, over={"noise": range(40)}), mass=1.0 * mass)
    told: dict[str, float] = {}

    class Asking(Address):
        @contextmanager
        def open(self, demand: Demand) -> Iterator[Client]:
            told.update({name: TaskPrefix(name).duration_average for name in ("with-hyphen", "mine", "tiny")})
            with super().open(demand) as client:
                yield client

    seconds = {"field": 1.0, "with-hyphen": 0.2, "mine": 5.0, "tiny": 0.00001}
    planned = replace(plan(w, store), expected_seconds=seconds)
    with dask.config.set({"distributed.scheduler.default-task-durations": {"mine": "3m"}}):
        assert not run(planned, store, cluster=Asking(cluster.site)).exit_status
    assert told == pytest.approx({"with-hyphen": 0.205, "mine": 180.0, "tiny": 40 * 0.00501 / 2}, rel=0.1)
    assert TaskPrefix("mine").duration_average < 0


def test_the_longest_chunks_of_a_configuration_begin_first(store: Store) -> None:
    """By measured seconds: two workers then end together, to within a short chunk."""
    w, field = toys.fields("ab")
    for mass, name in enumerate(("short", "long"), start=1):
        w.add(toys.loops, field, place=Place(name=name, over={"noise": range(3)}), mass=1.0 * mass)
    seconds = {"field": 0.5, "short": 1.0, "long": 4.0}
    planned = replace(plan(w, store), expected_seconds=seconds)
    tasks = sorted(plan_tasks(planned), key=lambda task: -task.priority)
    nodes = [f"{task.chunks[0].node.name} {task.chunks[0].coordinates['config'][0]}" for task in tasks]
    loops = [*["long a"] * 3, *["short a"] * 3]
    assert nodes[:7] == [*loops, "field a"] and nodes[7:] == [each.replace(" a", " b") for each in nodes[:7]]

    def wall(plan: Plan) -> float:
        return schedule(plan_tasks(plan), 2, lambda node, first: seconds[node], lambda node, first: 0.0)[0]

    turned = {**seconds, "short": 4.0, "long": 1.0}  # as if these began first
    assert wall(planned) == 15.5 < wall(replace(planned, expected_seconds=turned))


def test_the_longest_chunks_are_those_that_move_most_bytes_where_nothing_was_measured(store: Store) -> None:
    lengths = {"short": 10.0, "long": 1000.0}
    w, field = toys.fields()
    for name, mass in lengths.items():
        w.add(toys.loops, field, place=Place(name=name, over={"noise": range(2)}), mass=mass)
    planned = plan(w, store)
    for chunk in planned.missing:
        moved = lengths.get(chunk.node.name, 1.0)
        object.__setattr__(chunk.node, "cost", Cost(work=(Pass("passes", 3.0, moved),)))
    tasks = sorted(plan_tasks(planned), key=lambda task: -task.priority)
    assert [task.chunks[0].node.name for task in tasks] == ["long", "long", "short", "short", "field"]


def test_what_dask_is_told(store: Store) -> None:
    w, field = toys.fields()
    w.add(toys.loops, field, place=Place(over={"noise": [0]}), mass=1.0)
    tasks = tasks_of(w, store)
    graph = dask_graph(tasks, RunContext(store, "run", "cpu", 1, SOURCES))
    (layer,) = graph.layers.values()
    told = {kind: {name: look(name) for name in layer} for kind, look in layer.annotations.items()}
    by_node = {task.chunks[0].node.name: task for task in tasks}
    assert told["resources"] == {by_node["field"].name: None, by_node["loops"].name: {"device": 1}}
    assert set(told["retries"].values()) == {RETRIES}
    assert told["priority"][by_node["loops"].name] > told["priority"][by_node["field"].name]
    assert graph.get_all_dependencies()[by_node["loops"].name] == {by_node["field"].name}
    for task in graph.to_dict().values():  # descriptions travel, data never
        header, frames = serialize(task)
        assert sum(map(len, frames)) < 3000
        assert deserialize(header, frames).key == task.key


def test_a_transient_stage_runs_on_the_backend_of_its_consumer(store: Store) -> None:
    """`setup` asks for no device, and is shared by one stage that does and one that does not."""

    @stage(version="1", over=("config",), resources=Resources(device=1))
    def solve(setup: toys.Setup, *, at: At) -> toys.Field: ...

    w, field = toys.fields()
    setup = w.add(toys.setup, field)
    w.add(solve, setup)
    w.add(toys.with_setup, setup, place=Place(over={"noise": [0]}))
    graph = dask_graph(tasks_of(w, store), RunContext(store, "run", "cuda", 1, SOURCES)).to_dict()
    found = {}
    for task in graph.values():
        for work in task.args[0] if task.args else ():
            inputs = [source.node.backend for sources in work.inputs for source in sources]
            found[work.node.name] = (work.node.backend, inputs)
    assert found == {"field": ("cpu", []), "solve": ("cuda", ["cuda"]), "with_setup": ("cpu", ["cpu"])}


@pytest.mark.parametrize(
    ("tasks", "memory", "workers"), [(100, 0, 8), (3, 0, 3), (0, 0, 1), (100, 1 << 60, 1)]
)
def test_default_number_of_workers(tasks: int, memory: int, workers: int) -> None:
    assert default_workers(8, Demand(tasks, memory)) == workers


def test_a_container_bounds_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.running.clusters.local.MEMORY_LIMIT", 1_000)
    assert default_workers(8, Demand(100, 400)) == 2


def test_width(store: Store) -> None:
    w, field = toys.fields("ab")
    w.add(toys.mean, w.add(toys.loops, field, place=Place(over={"noise": [0, 1, 2]}), mass=1.0))
    assert widest_level(tasks_of(w, store)) == 6

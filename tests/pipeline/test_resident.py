"""Resident results that are larger than what a worker keeps: shared within a task, and said once."""

from __future__ import annotations

import numpy as np
import pytest
import toy_stages as toys

from pipeline import Keyed, Outcome, Place, Plan, Store, Workflow, plan, run, stage
from pipeline.running.clusters.address import Address
from pipeline.running.event_log import read_events
from pipeline.running.graph import _Works, plan_tasks
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.events import Event
from pipeline.worker.resident import ResidentCache
from pipeline.worker.sources import Sources
from pipeline.worker.work import RunContext


def workflow() -> Workflow:
    w = Workflow("resident")
    setup = w.add(toys.setup, w.add(toys.field, place=Place(over={"config": ["a"]})))
    w.add(toys.with_setup, setup, place=Place(over={"noise": range(6)}))
    return w


def bounded(nbytes: int, planned: Plan, store: Store, cluster: Address) -> Outcome:
    """A run whose workers keep no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.running.driver._resident_bytes", lambda workforce: nbytes)
        return run(planned, store, cluster=cluster)


def not_kept(store: Store, run: str) -> list[Event]:
    return [event for event in read_events(store, run) if event.kind == "not-kept"]


def test_a_result_beyond_the_bound_is_said_once_in_a_run(store, cluster, executed):
    outcome = bounded(47, plan(workflow(), store), store, cluster)
    assert outcome.exit_status == 0
    assert executed.new() == {"field": 1, "setup": 6, "with_setup": 6}
    (event,) = not_kept(store, outcome.run)
    assert (event.node, event.bytes, event.limit) == ("setup", 48, 47)
    assert event.message == (
        "a result of 'setup' has 48 B, but a worker keeps at most 47 B of resident results: every task "
        "makes it again; take fewer workers (`--workers`), or workers with more memory"
    )


def test_a_result_within_the_bound_is_no_news(store: Store, cluster: Address) -> None:
    outcome = bounded(48, plan(workflow(), store), store, cluster)
    assert not_kept(store, outcome.run) == []


def test_chunks_of_one_task_share_a_result_beyond_the_bound(store, cluster, executed):
    planned = plan(workflow(), store)
    planned.expected_seconds["with_setup"] = 0.0
    outcome = bounded(47, planned, store, cluster)
    assert outcome.exit_status == 0
    assert executed.new() == {"field": 1, "setup": 1, "with_setup": 6}


def test_an_array_that_two_results_hold_counts_once() -> None:
    cache, links = ResidentCache(90), np.zeros(8)
    cache.get("links", lambda: links)
    cache.get("space", lambda: (links, np.zeros(3)))
    assert cache.used == 88
    assert cache.get("links", lambda: None) is links


def test_the_oldest_results_make_room_for_a_task(store, monkeypatch, executed):
    """On a GPU: what other tasks left there goes as far as the next one needs, and no further."""
    cache, taken = ResidentCache(1_000), {"a": 60, "b": 20, "c": 10}
    for name in taken:
        cache.get(name, lambda: np.zeros(1))

    class Device:
        def free(self) -> int:
            return 10 + sum(size for name, size in taken.items() if name not in cache._entries)

    monkeypatch.setattr("pipeline.worker.evaluation.device_pool", lambda backend: Device())
    monkeypatch.setattr("pipeline.worker.evaluation.process_cache", lambda limit, backend: cache)
    store.create()
    w = Workflow("room")
    w.add(toys.Costing(toys.field, device_memory=75), place=Place(over={"config": ["a"]}))
    (task,) = plan_tasks(plan(w, store))
    (chunk,) = task.chunks
    work = _Works("cpu").to_compute(chunk)
    Evaluation([work], RunContext(store, "run", "cpu", 0, Sources((), "")), lambda event: None).compute(work)
    assert list(cache._entries) == ["c"]


@stage(version="1", over=("config",), transient=True, resident=True, keyed=Keyed(without=("layout",)))
def laid_out(field: toys.Field, *, layout: str = "wide") -> toys.Setup:
    return toys.Setup(field.values * len(layout))


def test_results_of_one_key_that_are_other_objects_have_names_of_their_own(store: Store) -> None:
    """What a key leaves out, of a result or of what it is made of, is in the name under which it stays."""

    def works(layout: str) -> list[str]:
        w, field = toys.fields("a", "layouts")
        setup = w.add(laid_out, field, layout=layout)
        w.add(toys.with_setup, setup, place=Place(over={"noise": [0]}))
        (chunk,) = [each for each in plan(w, store).chunks if each.node.name == "with_setup"]
        work = _Works("cpu").to_compute(chunk)
        ((made,),) = work.inputs or ()
        return [made.key, made.held_as, work.held_as]

    (key, made, of_it), (other_key, other_made, of_other) = works("wide"), works("narrow")
    assert key == other_key and made != other_made and of_it != of_other
    assert [key, made, of_it] == works("wide")

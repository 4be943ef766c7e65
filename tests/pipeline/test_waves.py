"""Graphs that are sent to the scheduler in pieces: each chunk is computed once, after all that it reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import toy_stages as toys
from distributed import Client
from test_runs import ensemble

from pipeline import Outcome, Place, Store, Workflow, plan
from pipeline.running import session
from pipeline.running.graph import dask_graph, plan_tasks, submission_order

Compute = Callable[[Workflow], Outcome]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of tasks in the pieces that were sent; at most 4 tasks are out at a time."""
    sizes: list[int] = []

    def counted(tasks, *others):  # type: ignore[no-untyped-def]
        sizes.append(len(tasks))
        return dask_graph(tasks, *others)

    monkeypatch.setattr(session, "OUTSTANDING", 4)
    monkeypatch.setattr(session, "WAVE", 2)
    monkeypatch.setattr(session, "dask_graph", counted)
    return sizes


def test_a_graph_in_pieces_computes_every_chunk_once(compute, executed, pieces):
    outcome = compute(ensemble("abc", 8))
    assert outcome.exit_status == 0, outcome.table()
    assert executed.new() == {"config_mean": 3, "field": 3, "loops": 12, "mean": 1}
    assert len(pieces) > 3 and max(pieces) <= 4


def test_what_reads_a_failed_chunk_is_blocked_in_later_pieces_too(compute, executed, pieces, store):
    w, field = toys.fields("abcdef", "failing")
    fragile = w.add(toys.fragile, field, bad=("c",))
    w.add(toys.loops, fragile, place=Place(over={"noise": [0]}), mass=0.5)
    outcome = compute(w)
    assert outcome.count("failed") == 1 and outcome.count("blocked") == 1
    assert outcome.count("done") == 16


def test_any_first_part_can_be_sent_alone_and_configurations_come_one_after_the_other(store: Store) -> None:
    tasks = submission_order(plan_tasks(plan(ensemble("abc", 4), store)))
    seen: set[str] = set()
    for task in tasks:
        assert set(task.after) <= seen
        seen.add(task.name)
    order = [f"{t.chunks[0].node.name} {t.chunks[0].coordinates.get('config', ('',))[0]}" for t in tasks]
    assert order[:4] == ["field a", "loops a", "loops a", "config_mean a"]
    assert order.index("field b") > order.index("loops a") and order.index("mean ") > order.index("field c")


def test_a_scheduler_that_still_holds_what_a_task_returned_runs_it_again(compute, store, monkeypatch):
    """Futures of the first attempt are not released, as when that message comes late."""

    def loops(mass: float) -> Workflow:
        w, field = toys.fields("a", "again")
        w.add(toys.loops, field, place=Place(over={"noise": [0]}), mass=mass)
        return w

    compute(loops(1.0))
    (key,) = store.keys("field")
    store.location("field", key).write_text("damaged")
    sent, held = Client.get, list[object]()

    def holding(client: Client, *about: object, **options: object) -> object:
        held.append(sent(client, *about, **options))
        return held[-1]

    monkeypatch.setattr(Client, "get", holding)
    outcome = compute(loops(2.0))
    assert outcome.exit_status == 0, outcome.table()
    assert len(held) == 2

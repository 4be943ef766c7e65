"""Facts of the dashboard: what is read of a store is what it holds, and is read once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import toy_stages as toys
from dashboard_facts import read_whole
from stores import demo, filled

from pipeline import Outcome, Place, Store, Workflow
from pipeline.reading.dashboard.facts import chunks as chunk_facts
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.chunks import SETTLED_NS, StoredChunks
from pipeline.reading.dashboard.facts.grid import MOST_CELLS, Grid
from pipeline.reading.dashboard.facts.pace import seconds_left, throughput
from pipeline.reading.dashboard.facts.records import Records
from pipeline.reading.dashboard.facts.runs import RunLog, Runs
from pipeline.reading.dashboard.look import html_of
from pipeline.reading.dashboard.panel import NodeFigures
from pipeline.reading.dashboard.panels.jobs import jobs
from pipeline.running.event_log import EventLog
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.lock import driver_lock
from pipeline.store.record import Record
from pipeline.worker.events import Event
from workflows.shared.dashboard import COLUMNS
from workflows.shared.dashboard.histories import Histories
from workflows.shared.dashboard.samples import Samples

Compute = Callable[[Workflow], Outcome]


def workflow_of(noise: int, bad: tuple[str, ...] = ()) -> Workflow:
    w, links = toys.fields(["c.1", "c.2", "c.3"])
    fine = w.add(toys.fragile, links, place=Place(name="fine"), bad=bad)
    loops = w.add(toys.loops, fine, place=Place(over={"noise": range(noise)}, chunk={"noise": 2}), mass=0.1)
    w.add(toys.mean, loops)
    return w


def event(kind: str, key: str, **values: Any) -> Event:
    about = {"node": "loops", "stage": "loops", "coordinates": {"config": ["a"], "noise": [4, 5]}}
    return Event.of({"event": kind, "key": key, "time": 1000.0, "worker": "tcp://w", **about, **values})


def by_row(campaign: Campaign) -> dict[str, tuple[int, int, int]]:
    rows = campaign.grid.rows
    return {row.node: (row.stored.total(), row.failed.total(), len(row.place)) for row in rows}


def test_counts_are_those_of_the_store_and_follow_it(store: Store, compute: Compute) -> None:
    compute(workflow_of(4, bad=("c.2",)))
    campaign = read_whole(store)
    assert by_row(campaign) == {"field": (3, 0, 3), "fine": (2, 1, 3), "loops": (4, 0, 6), "mean": (0, 0, 1)}
    row = next(row for row in campaign.grid.rows if row.node == "fine")
    assert [row.axis.named(column) for column in row.failed] == ["c.2"]
    counts = [campaign.grid.count(state) for state in ("stored", "total", "failed")]
    assert counts == [9, 13, 1]
    (group,) = campaign.runs.newest.state.failures.groups.values()  # type: ignore[union-attr]
    assert "c.2" in campaign.runs.newest.details[group.error]  # type: ignore[union-attr]
    compute(workflow_of(6))
    read_whole(store, campaign)
    stored = {node: counts[0] for node, counts in by_row(campaign).items()}
    assert stored == {"field": 3, "fine": 3, "loops": 9, "mean": 1}
    assert seconds_left(campaign) == (None, "complete")
    assert len(campaign.chunks) == campaign.records.read == sum(len(store.keys(s)) for s in store.stages())
    seconds = [store.record("loops", key)["seconds"] for key in store.keys("loops")]
    loops = campaign.records.nodes["loops"]
    assert loops.total("seconds") == pytest.approx(sum(seconds)) and loops.most("seconds") == max(seconds)
    assert loops.chunks == loops.counted("seconds") == len(seconds)
    assert sorted(run.ends["done"] for run in campaign.runs.history().values()) == [9, 13]
    times, rates, width = throughput(campaign)
    assert width * sum(rates) == pytest.approx(22) and times == sorted(times)


def test_what_nothing_measured_is_none_and_not_zero(store: Store, compute: Compute) -> None:
    compute(workflow_of(2))
    campaign = read_whole(store)
    for name, figures in campaign.records.nodes.items():
        columns = [value(NodeFigures(name, figures, campaign)) for value in COLUMNS.values()]
        measured = (figures.total("joules"), figures.most("device_bytes"), *columns)
        assert measured == (None,) * 5 and figures.counted("joules") == 0
    assert campaign.records.power() == ([], [], [])
    about = {"node": "loops", "finished": "2026-03-05T10:00:00+00:00"}
    campaign.records._add("loops", "k", Record(**about, seconds=4.0, joules=12.0))
    loops = campaign.records.nodes["loops"]
    assert (loops.total("joules"), loops.counted("joules"), loops.chunks) == (12.0, 1, 4)
    assert campaign.records.power()[1:] == ([3.0], [12.0])


def test_the_speed_of_a_transient_solve_is_that_of_the_chunk_made_of_it(store: Store) -> None:
    records = Records(store)
    record = Record(node="mesons", finished="2026-03-05T10:00:00+00:00", seconds=2.0)
    sources = {"statistics": {"norm": 1.0}}
    solves = {"statistics": {"gflops": 300.0, "of_copy_bandwidth": 0.7, "seconds": 0.1}}
    records._add("mesons", "k", replace(record, transient=[sources, solves]))
    records._add("mesons", "l", record)
    figures = records.nodes["mesons"]
    assert figures.mean("gflops") == 300.0 and figures.mean("of_copy_bandwidth") == 0.7
    assert figures.mean("norm") == 1.0 and figures.mean("iterations") is None
    assert figures.total("seconds") == 4.0


def test_folders_are_listed_once_until_they_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create()
    keys = [f"{k:03x}" + "0" * 61 for k in range(3)]
    listed: list[str] = []
    original = chunk_facts.shelved
    monkeypatch.setattr(chunk_facts, "shelved", lambda path: (listed.append(path), original(path))[1])

    def put(key: str) -> None:
        place = store.location("loops", key)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
        settled = place.stat().st_mtime_ns - 2 * SETTLED_NS
        os.utime(place.parent, ns=(settled, settled))

    for key in keys:
        put(key)
    chunks = StoredChunks(store)
    assert sorted(chunks.refresh()[1]["loops"]) == keys and len(listed) == 3
    assert chunks.refresh() == (False, {}) and len(listed) == 3
    second = keys[1][:-1] + "1"
    place = store.location("loops", second)
    place.write_bytes(b"x")
    assert chunks.refresh() == (False, {"loops": [second]}) and len(listed) == 4
    assert second in chunks and len(chunks) == 4
    place.unlink()
    os.utime(place.parent)
    assert chunks.refresh()[0] and second not in chunks and len(chunks) == 3


def test_a_log_is_read_on_from_its_last_whole_line(store: Store) -> None:
    store.create()
    with EventLog(store, "run-1") as log:
        log(Event("run-started", 1.0, workflow="w", missing={"loops": 2}))
        for done, iterations, residual in ((0, 10, 1e-1), (0, 20, 1e-3), (1, 10, 1e-2)):
            log(event("progress", "p", done=done, total=2, iterations=iterations, residual=residual))
        log(event("progress", "q", done=3, total=9, restarts=2, residual=1e-4))
        histories = Histories()
        read = RunLog(store, "run-1", [histories])
        assert read.advance() and not read.advance()
        assert histories.reported["run-1", "solves"] == {"loops a 4": [(10, 1e-2)]}, "the block in hand"
        assert histories.reported["run-1", "restarts"] == {"loops a 4": [(2, 1e-4)]}
        failed = event("failed", "p", error="residual 3e-9", details="Traceback 1")
        line = json.dumps(failed.as_dict()).encode()
        with open(store.path / ".runs" / "run-1" / "events.jsonl", "ab") as torn:
            torn.write(line[:20])
            torn.flush()
            assert not read.advance() and not read.failed
            torn.write(line[20:] + b"\n")
    read.advance()
    assert read.failed == {"p"} and read.details == {"residual 3e-9": "Traceback 1"}
    assert read.workers["tcp://w"].chunks == 1 and not read.state.is_over
    assert read.part_read == 1.0


def test_chunks_of_a_driver_that_died_are_not_in_work(store: Store, compute: Compute) -> None:
    compute(workflow_of(2))
    (key,) = store.keys("mean")
    store.remove("mean", key)
    with EventLog(store, "run-9") as log:
        log(Event("run-started", 1.0, workflow="w", missing={"mean": 1}))
        log(event("started", key, node="mean", stage="mean", coordinates={}))
    campaign = read_whole(store)
    assert campaign.grid.count("running") == 0 and not campaign.live
    with driver_lock(store, "run-9"):
        campaign.refresh()
        assert campaign.grid.count("running") == 1 and [log.name for log in campaign.live] == ["run-9"]
    campaign.refresh()
    assert campaign.grid.count("running") == 0


def test_a_look_that_fails_halfway_counts_nothing_twice_and_forgets_nothing(tmp_path, monkeypatch):
    filled(tmp_path / "s", demo("ab"), run="20261101-000000-aaaa")
    store, counted = Store(tmp_path / "s"), {"field": 2, "loops": 4}
    campaign = Campaign(store)

    def look(*, fails: bool = False) -> dict[str, int]:
        with monkeypatch.context() as patch:
            if fails:
                patch.setattr(chunk_facts, "is_shelf", lambda entry: 1 / ("loops" not in entry.path))
                with pytest.raises(ZeroDivisionError):
                    campaign.refresh()
            else:
                campaign.refresh()
        return {row.node: row.stored.total() for row in campaign.grid.rows if row.node in counted}

    look(fails=True)
    assert look() == counted
    look(fails=True)
    assert look() == counted
    filled(tmp_path / "s", demo("abc"), run="20261102-000000-bbbb")
    look(fails=True)  # the grid is a new one
    assert look() == {"field": 3, "loops": 6}
    for _ in range(3):
        look()
    assert campaign.records.read + campaign.records.unreadable == len(store.chunks())


def test_what_is_retracted_counts_no_more(store: Store, compute: Compute) -> None:
    compute(workflow_of(4))
    campaign = read_whole(store)
    assert campaign.own(Samples).curves["loops"].counts == [2, 4]
    for key in store.keys("loops"):
        if store.record("loops", key)["coordinates"]["noise"] == [2, 3]:
            store.set_aside("loops", key)
    read_whole(store, campaign)
    assert campaign.own(Samples).curves["loops"].counts == [2]
    assert by_row(campaign)["loops"] == (3, 0, 6) and campaign.records.nodes["loops"].chunks == 3


def test_runs_that_ended_long_ago_are_summed_up_and_not_followed(store: Store) -> None:
    store.create()
    for name in ("run-1", "run-2", "run-3"):
        with EventLog(store, name) as log:
            log(Event("run-started", 1.0, workflow="w"))
            log(event("done", "p"))
            log(Event("run-ended", 61.0, stopped="SIGTERM"))
        os.utime(store.path / ".runs" / name / "events.jsonl", (0, 0))
    runs = Runs(store)
    runs.refresh()
    assert list(runs.followed) == ["run-3"]
    assert list(runs.history()) == ["run-3", "run-2", "run-1"]
    lasts = [run.last for run in runs.history().values() if run.is_over]
    assert [(last.time, last.stopped) for last in lasts] == 3 * [(61.0, "SIGTERM")]


def test_failures_are_not_those_of_the_average_of_what_is_complete(store: Store) -> None:
    """It is a run of its own, after the one that left something out; the log of that one may be old."""
    store.create()
    for name, workflow in (("run-1", "w"), ("run-2", "w"), ("run-3", "w.partial")):
        with EventLog(store, name) as log:
            log(Event("run-started", 1.0, workflow=workflow))
            log(event("failed", "p", error="E") if name == "run-2" else event("done", "p"))
            log(Event("run-ended", 61.0))
        os.utime(store.path / ".runs" / name / "events.jsonl", (0, 0))
    runs = Runs(store)
    runs.refresh()
    assert list(runs.followed) == ["run-3", "run-2"]
    assert runs.newest and runs.newest.name == "run-2" and runs.newest.failed == {"p"}


def test_errors_of_samples_are_those_of_the_arrays(store: Store, compute: Compute) -> None:
    compute(workflow_of(8))
    campaign = read_whole(store)
    samples: dict[str, dict[int, np.ndarray]] = {}
    for key in store.keys("loops"):
        at, values = store.record("loops", key)["coordinates"], store.load("loops", key)
        curve = campaign.own(Samples).curves["loops"]
        for number, value in zip(at["noise"], values["current"], strict=True):
            samples.setdefault(at["config"][0], {})[number] = value
    ordered = [np.array([of[n] for n in sorted(of)]).reshape(len(of), -1) for of in samples.values()]
    assert curve.counts == [2, 4, 8] and len(ordered) == 3
    for count, error in zip(curve.counts, curve.errors, strict=True):
        each = [np.var(values[:count], axis=0, ddof=1).mean() / count for values in ordered]
        assert error == pytest.approx(np.sqrt(np.mean(each)))


def test_a_ledger_is_added_up_by_job(store: Store) -> None:
    store.create()
    ledger = Ledger(store)
    assert not ledger.state().last_campaign.jobs
    ledger.add(LedgerEvent.BUDGET, node_hours=10.0, joules=None)
    for job, seconds in (("7", 3600.0), ("8", 1800.0)):
        ledger.add(LedgerEvent.SUBMITTED, job=job, chain="c", name="n", after=None, nodes=1, walltime=7200)
        ledger.add(LedgerEvent.BEGAN, job=job, chain="c", host="h", nodes=1, missing=5)
        ledger.add(
            LedgerEvent.ENDED, job=job, chain="c", node_seconds=seconds, joules=None, commits=3, missing=2
        )
    ledger.add(LedgerEvent.SUBMITTED, job="9", chain="c", name="n", after="8", nodes=1, walltime=7200)
    total = ledger.state().last_campaign
    assert (total.node_seconds(1e10), total.joules) == (1.5 * 3600, None)
    assert total.last_budget and (total.last_budget.node_hours, total.last_budget.joules) == (10.0, None)
    shown = html_of(jobs(read_whole(store)))
    tiles = re.findall("<b>([^<]*)</b>([^<]*)", shown)
    assert tiles[:2] == [("1.5", "node-hours"), ("10", "budget of node-hours")]
    assert tiles[2:] == [("not measured", "joules of ended jobs"), ("no limit", "budget of joules")]
    assert re.findall("<tr><td>([^<]*)", shown) == ["9", "8", "7"]
    states = {"7": "ended", "8": "ended", "9": "submitted"}
    assert [(job.job, job.state) for job in total.jobs] == list(states.items())


def test_cells_do_not_grow_with_chunks(store: Store) -> None:
    from pipeline import plan
    from pipeline.planning.manifest_files import manifests, write_manifest

    w, links = toys.fields([f"c.{k}" for k in range(500)], "many")
    w.add(toys.loops, links, place=Place(over={"noise": range(20)}, chunk={"noise": 1}), mass=0.1)
    store.create()
    planned = plan(w, store)
    write_manifest(store, planned.workflow, planned.backend, planned.everything, planned.about)
    grid = Grid(manifests(store))
    assert sum(len(row.total) for row in grid.rows) <= min(MOST_CELLS, 2 * 60)
    assert [row.total.total() for row in grid.rows] == [500, 10_000]
    loops = grid.rows[1]
    spans = [loops.axis.span(column) for column in sorted(loops.total)]
    assert spans[0][0] == 0.0 and spans[-1][1] == 1.0
    assert all(before[1] == after[0] for before, after in pairwise(spans))

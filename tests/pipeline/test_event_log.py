"""Logs of runs: bounded in bytes, with a tally that says what all events come to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import toy_stages as toys
from stores import demo

from pipeline import Place, Share, Store, Workflow, plan, run
from pipeline.planning.manifest_files import write_manifest
from pipeline.reading.account import account, accounts
from pipeline.reading.dashboard.facts.runs import RunLog
from pipeline.reading.forecast.samples import samples
from pipeline.reading.status import run_status, status
from pipeline.running import event_log
from pipeline.running.event_log import EventLog, log_of, read_events, runs, state_of
from pipeline.running.graph import work_of
from pipeline.running.limits import Limits
from pipeline.running.run_state import RunState
from pipeline.store.lock import driver_lock
from pipeline.worker.events import ChunkState, Event, EventKind
from pipeline.worker.sources import sources_of
from pipeline.worker.task import execute
from pipeline.worker.work import RunContext
from workflows.display import RunDisplay


def events(chunks: int) -> list[Event]:
    """A run of so many chunks, of which the last but one fails and the last is in work."""
    listed: list[dict[str, Any]] = [{"event": "run-started", "time": 0.0, "workflow": "w"}]
    for number in range(chunks):
        listed.append({"event": "started", "time": float(number), "key": f"{number:064x}", "stage": "s"})
        listed[-1].update(node="loops", coordinates={"config": ["a"]}, error="")
        listed.append({**listed[-1], "event": "progress", "done": 1, "total": 2})
        if number < chunks - 1:
            listed.append({**listed[-2], "event": "failed" if number == chunks - 2 else "done"})
    return [Event.of(each) for each in listed]


@pytest.mark.parametrize("log_bytes", [0, 2000, 1 << 20])
@pytest.mark.parametrize("interval", [-1.0, 1e9])
def test_a_tally_counts_what_the_log_leaves_out(store, monkeypatch, log_bytes, interval):
    monkeypatch.setattr(event_log, "LOG_BYTES", log_bytes)
    monkeypatch.setattr(event_log, "TALLY_BYTES", 0)
    monkeypatch.setattr(event_log, "TALLY_INTERVAL", interval)
    store.create()
    expected, shown = RunState(), list[dict[str, Any]]()
    with EventLog(store, "run", shown.append) as log:
        for event in events(30):
            log(event)
            expected.add(event)
        if interval < 0:  # the driver may be killed now
            assert state_of(store, "run") == expected
    assert state_of(store, "run") == expected
    assert expected.ends == {"done": 28, "failed": 1} and len(expected.running) == 1
    assert shown == [event.as_dict() for event in events(30)]
    written = list(read_events(store, "run"))
    assert len(written) == len(shown) if log_bytes == 1 << 20 else len(written) < len(shown)
    assert [event.kind for event in written].count("failed") == 1
    status = run_status(store, "run")
    assert (status.workflow, status.counts, len(status.running)) == ("w", {"done": 28, "failed": 1}, 1)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", "[" * 100_000),
        '{"read": 0, "more": 1}',
        '{"read": "0"}',
        '{"read": -5}',
        '{"read": 0, "running": {"k": 5}}',
        '{"read": 0, "first": {"event": []}}',
    ],
)
def test_a_tally_that_cannot_be_read_is_none(store, monkeypatch, content):
    monkeypatch.setattr(event_log, "TALLY_BYTES", 0)
    store.create()
    with EventLog(store, "run") as log:
        for event in events(5):
            log(event)
        log(Event("cluster-ready", 9.0, dashboard="a token"))
    path: Path = store.path / ".runs" / "run" / "tally.json"
    assert json.loads(path.read_text())["ends"] == {"done": 3, "failed": 1}
    assert "a token" not in path.read_text()
    path.write_text(content)
    assert state_of(store, "run").ends == {"done": 3, "failed": 1}


def test_a_run_goes_past_every_bound_of_its_log(store, compute, monkeypatch):
    """With the events that a run has: the tally is kept at once, and what goes well is not written."""
    monkeypatch.setattr(event_log, "LOG_BYTES", 0)
    monkeypatch.setattr(event_log, "TALLY_BYTES", 0)
    monkeypatch.setattr(event_log, "TALLY_INTERVAL", -1.0)
    outcome = compute(demo("abc"))
    assert (outcome.exit_status, outcome.count("done")) == (0, 10)
    kept = json.loads((store.path / ".runs" / outcome.run / "tally.json").read_bytes())
    assert kept["ends"] == {"done": 10}
    assert kept["first"]["missing"] == {"field": 3, "loops": 6, "mean": 1}
    assert kept["last"]["states"]["loops"] == {"done": 6}
    expected = ["run-started", "cluster-ready", "run-ended"]
    assert [event.kind for event in read_events(store, outcome.run)] == expected
    assert run_status(store, outcome.run).counts == {"done": 10}


LOWERED = {
    "pipeline.running.event_log": {"RUNS_KEPT": 2, "LOG_BYTES": 0, "TALLY_BYTES": 0, "TALLY_INTERVAL": -1.0},
    "pipeline.running.run_state": {"FAILURES_KEPT": 1, "LATELY": 1},
    "pipeline.running.session": {"OUTSTANDING": 4, "WAVE": 2, "QUEUED": 1, "INTERVAL": 0.2, "TICK": 0.05},
    "pipeline.running.workforce": {"REVIVAL": 0.0, "WAITING": 0.01},
    "pipeline.running.graph": {"SHORTEST_TASK": 0.0},
    "pipeline.running.sharing": {"LOOK": 0.0},
    "pipeline.store.lease": {"BEAT": 0.02, "STALE": 0.2},
    "pipeline.store.claims": {"KNOWN": 0.0},
    "pipeline.store.files": {"SETTLED": 0.0},
    "workflows.display": {"MINUTE": 0.0, "TOLD": 1},
}
"""Thresholds of size and time that a long run passes in its driver."""


@pytest.mark.parametrize("share", [None, Share()])
def test_a_run_passes_all_thresholds(store, cluster, monkeypatch, capsys, share):
    """Long names, more failures than are kept, a clock that was wrong before, chunks found damaged."""
    for module, values in LOWERED.items():
        for name, value in values.items():
            monkeypatch.setattr(f"{module}.{name}", value)
    configs = [letter * 200 for letter in "abcd"]
    w = Workflow("long")
    field = w.add(toys.field, place=Place(name="field" * 60, over={"config": configs}))
    assert run(plan(w, store), store, cluster=cluster).exit_status == 0
    for number in range(4):
        with EventLog(store, f"20990101-00000{number}-abcd") as log:
            log(Event(EventKind.RUN_STARTED, run="later", workflow="long"))
    damaged = store.location("field", next(iter(store.keys("field"))))
    w.add(toys.fragile, field, bad=tuple(configs[:2]))
    w.add(toys.loops, field, place=Place(over={"noise": range(3)}, chunk={"noise": 1}), mass=0.5)
    planned = plan(w, store)
    damaged.write_bytes(damaged.read_bytes()[:-17])
    monkeypatch.setattr("pipeline.running.driver.LIMITS", Limits(saying=0.0))
    with RunDisplay() as display:
        outcome = run(planned, store, cluster=cluster, listener=display, share=share)
    said = capsys.readouterr().err
    assert "the run goes on" not in said and "is damaged: moved to" in said
    assert (outcome.exit_status, len(outcome.failures)) == (1, 2)
    assert outcome.states["loops"] == {"done": 12}
    assert outcome.states["fragile"] == {"done": 2, "failed": 2}
    found = run_status(store, outcome.run)
    assert found.counts["done"] == 15 and "1 chunk more, see the log" in found.failures[-1]
    assert [chunk.node.name for chunk in plan(w, store).missing] == ["fragile"] * 2


@pytest.mark.parametrize(
    "watcher",
    [
        *("the display", "run_state.RunState.add", "event_log.EventLog._keep_tally"),
        *("event_log.EventLog._write", "driver.drop_old_runs", "driver.cancel_left_jobs"),
        *("driver._note_start", "driver._note_end"),
    ],
)
def test_nothing_that_watches_a_run_ends_it(store, cluster, monkeypatch, capsys, watcher):
    """Its first failure is one warning, to who listens or, where that is what failed, on the terminal."""

    def fail(*_: object) -> None:
        raise KeyError("loops")

    monkeypatch.setattr(event_log, "TALLY_INTERVAL", -1.0)
    shown = list[dict[str, Any]]()
    if watcher != "the display":
        monkeypatch.setattr(f"pipeline.running.{watcher}", fail)
    listener = fail if watcher == "the display" else shown.append
    outcome = run(plan(demo("a", 1), store), store, cluster=cluster, listener=listener)
    assert (outcome.exit_status, outcome.count("done")) == (0, 3)
    said = [event["message"] for event in shown if event["event"] == "note"]
    said += capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "failed (KeyError: 'loops'); the run goes on" in said[0]
    assert not plan(demo("a", 1), store).missing


CHUNK = {"time": 5.0, "node": "loops", "stage": "loops", "key": "k", "coordinates": {"config": ["a"]}}
EVENTS: list[dict[str, Any]] = [
    {"event": ["done"], "time": 5.0},
    {"event": "run-started", "time": 5.0, "missing": [1]},
    {"event": "run-ended", "time": "late"},
    {"event": "started", "time": 5.0},
    {**CHUNK, "event": "done", "joules": "many"},
    {**CHUNK, "event": "done", "coordinates": "abc"},
    *({**CHUNK, "event": "failed", **more} for more in ({}, {"error": 7})),
    {**CHUNK, "event": "progress", "total": None},
]
DAMAGED = [b"[" * 100_000, b"\xff\xfe\0", *(json.dumps(event).encode() for event in EVENTS)]
"""Lines of a log that say nothing."""


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_line_of_a_log_is_skipped_by_all_who_read_it(store: Store, line: bytes) -> None:
    store.create()
    with EventLog(store, "run") as log:
        for event in events(5):
            log(event)
    path = log_of(store, "run")
    before = str(status(store))
    path.write_bytes(line + b"\n" + path.read_bytes() + line + b"\n")
    assert str(status(store)) == before
    followed = RunLog(store, "run")
    followed.advance()
    assert followed.state == state_of(store, "run") and len(followed.failed) == 1


def test_status_is_of_the_run_that_drives_the_store_though_an_older_one_has_a_later_name(store):
    store.create()
    for name in ("20991128-000000-ab", "20261128-000000-cd"):
        with EventLog(store, name) as log:
            for event in events(5):
                log(event)
    assert status(store).last_run.run == "20991128-000000-ab"  # type: ignore[union-attr]
    with driver_lock(store, "20261128-000000-cd"):
        assert status(store).last_run.run == "20261128-000000-cd"  # type: ignore[union-attr]


def test_a_log_that_is_no_file_is_no_run_and_what_json_does_not_know_is_text(store: Store) -> None:
    """A pipe would never answer."""
    store.create()
    (store.path / ".runs" / "run").mkdir()
    os.mkfifo(store.path / ".runs" / "run" / "events.jsonl")
    assert runs(store) == [] and status(store).last_run is None
    with EventLog(store, "other") as log:
        log(Event("note", 0.0, message=Path("a"), more={"more": {1}}))  # type: ignore[arg-type]
    assert [event.message for event in read_events(store, "other")] == ["a"]


def test_names_that_are_no_text_travel(tmp_path, cluster, capsys):
    """Of a store and of configurations: bytes of file names that are not UTF-8."""
    store, odd = Store(tmp_path / os.fsdecode(b"st\xff")), os.fsdecode(b"b\xff")
    w, field = toys.fields(["a", odd], "odd")
    w.add(toys.fragile, field, bad=(odd,))
    with RunDisplay() as display:
        outcome = run(plan(w, store), store, cluster=cluster, listener=display)
    assert (outcome.exit_status, outcome.count("done"), outcome.count("failed")) == (1, 3, 1)
    assert "is bad" in outcome.table() and "failed: fragile config=b\\udcff" in capsys.readouterr().err
    assert run_status(store, outcome.run).counts == {"done": 3, "failed": 1}


@pytest.mark.parametrize(
    "measurement",
    [
        *("record.watch", "record.energy_meter", "record.host_peak", "record.expected_of", "record.parts_of"),
        *("record.Evaluation.resident_bytes", "memory._high_water", "task.trim_heap", "task.kernel_seconds"),
        *("stopwatch.Stopwatch.take", "certificate._found", "events.as_json"),
    ],
)
def test_no_measurement_of_a_chunk_ends_it(store, monkeypatch, measurement):
    """It is committed, with a record that all readers take."""

    def fail(*_: object) -> None:
        raise RuntimeError("the counter is gone")

    monkeypatch.setattr(f"pipeline.worker.{measurement}", fail)
    store.create()
    planned = plan(demo("a", noise=2), store)
    context = RunContext(store, "run", "cpu", 1 << 20, sources_of([toys.field]))
    for chunk in planned.missing:
        (outcome,) = execute([work_of(chunk, "cpu")], context, frozenset())
        assert outcome.kind == ChunkState.DONE, outcome
    write_manifest(store, "demo", "cpu", planned.everything, planned.about, planned.source)
    assert not plan(demo("a", noise=2), store).missing
    assert len(samples([store])) == 3 and account(store, "demo", accounts(store, "demo"))

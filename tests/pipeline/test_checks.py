"""Silent errors of memory and arithmetic: noticed before a commit, or found by repetition and retracted."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy_checks as broken
import toy_stages as toys
from executions import Executions

from pipeline import InputError, Place, Store, Workflow, open_result, plan, run
from pipeline.reading.account import NodeAccount, checks_section
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.local import Local
from pipeline.running.event_log import EventLog, read_events
from pipeline.running.quarantine import Quarantine
from pipeline.running.run_state import CheckCounts
from pipeline.running.stopping import StopRequest
from pipeline.store.record import Record
from pipeline.worker.checks import Checks, Effort, Sums, arrays_of, host_checksum
from pipeline.worker.events import Event, chunk_identity
from stages.base.errors import DisagreementError

NOISE = 16


def events(store: Store, run: str, kind: str) -> list[Event]:
    return [event for event in read_events(store, run) if event.kind == kind]


def memory_workflow(**options: object) -> Workflow:
    w = Workflow("memory")
    setup = w.add(toys.setup, w.add(toys.field, place=Place(over={"config": ["a"]})))
    w.add(broken.damaging, setup, place=Place(over={"noise": range(5)}), **options)
    return w


def wrong_workflow(bad: tuple[int, ...] = (), noise: int = NOISE) -> Workflow:
    w, field = toys.fields("a", "wrong")
    sums = w.add(broken.sometimes_wrong, field, place=Place(over={"noise": range(noise)}), bad=bad)
    w.add(broken.doubled, sums)
    return w


def test_a_resident_result_that_changes_is_made_again_and_nothing_of_it_is_committed(
    store: Store, cluster: Address, executed: Executions
) -> None:
    outcome = run(plan(memory_workflow(bad=(2,)), store), store, cluster=cluster)
    assert outcome.exit_status == 0, outcome.table()
    expected = np.sum((np.arange(6.0) + toys.number("a")) ** 2) + np.arange(5)
    assert np.array_equal(open_result(store, "damaging").total[0], expected)
    (event,) = events(store, outcome.run, "disagreed")
    assert event.coordinates["noise"] == (2,)
    assert "setup of setup config=a (values) changed in memory since it was made" in event.message
    assert executed.new()["damaging"] >= 6
    assert (outcome.checks.disagreed, outcome.checks.retracted) == (1, 0)
    assert "1 check failed" in outcome.table()


def test_a_chunk_that_disagrees_everywhere_fails_and_the_others_do_not(store, cluster):
    outcome = run(plan(memory_workflow(bad=(3,), always=True), store), store, cluster=cluster)
    assert outcome.exit_status == 1
    (failure,) = outcome.failures
    assert list(failure.coordinates["noise"]) == [3]
    assert "a check failed on 2 processes, so that no machine is to blame" in failure.error
    assert outcome.states["damaging"] == {"done": 4, "failed": 1}


def test_wrong_arithmetic_is_found_by_repetition_and_what_the_worker_committed_is_retracted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker, so that it has committed something before it is found out."""
    monkeypatch.setenv(toys.LOG, str(tmp_path / "executions"))
    checks = Checks(fraction=0.3)
    chunks = [c for c in plan(wrong_workflow(), store).chunks if c.node.name == "sometimes_wrong"]
    keys = {int(chunk.coordinates["noise"][0]): chunk.key for chunk in chunks}
    chosen = [noise for noise, key in keys.items() if checks.choose(key)]
    unnoticed = [noise for noise in range(0, chosen[-1], 3) if noise not in chosen]
    workflow = wrong_workflow((*unnoticed, chosen[-1]))
    outcome = run(plan(workflow, store), store, cluster=Local(workers=1), checks=checks)
    assert outcome.exit_status == 0, outcome.table()
    found = events(store, outcome.run, "disagreed")
    moved = {event.key for event in events(store, outcome.run, "retracted")}
    assert found and outcome.checks.disagreed == len(found) and outcome.checks.retracted >= len(moved)
    log = list(read_events(store, outcome.run))
    for event in found:
        mine = [e for e in log[: log.index(event)] if (e.kind, e.worker) == ("done", event.worker)]
        assert {each.key for each in mine if not each.repeated} <= moved
    reasons = {grave.read_text() for grave in (store.path / ".damaged").glob("*/*.reason")}
    assert any(reason.startswith("a worker on ") for reason in reasons)
    assert not plan(workflow, store).missing
    sums = open_result(store, "sometimes_wrong").load()
    assert np.array_equal(open_result(store, "doubled").total, 2 * sums.total)
    off = np.flatnonzero(sums.total[0] != (6 * toys.number("a") + 15.0) * (np.arange(NOISE) + 1))
    assert not moved & {keys[noise] for noise in off}, "what was retracted is right now"
    assert not set(off) & set(chosen)


@pytest.mark.parametrize(
    ("places", "stopped"), [("gpu0 gpu0", ""), ("gpu0 gpu1 gpu0 gpu1", ""), ("gpu1 gpu0 gpu0 gpu0", "gpu0")]
)
def test_three_failed_checks_at_one_place_stop_the_run(store: Store, places: str, stopped: str) -> None:
    store.create()
    stop, planned = StopRequest(), plan(wrong_workflow(), store)
    with EventLog(store, "run") as log:
        quarantine = Quarantine(planned, store, log, stop)
        for chunk, place in zip(planned.chunks, places.split(), strict=False):
            about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
            quarantine.disagreed(Event("disagreed", **about, worker="w", place=place, error="sums"))
    assert stop.check() == bool(stopped) and not quarantine.hopeless
    said = f"3 failed checks on {stopped}: do not trust that machine" if stopped else ""
    assert stop.reason == said


def test_the_line_on_checks_and_the_report() -> None:
    for repeated, part in ((0, ""), (1, "1 chunk"), (12, "12 chunks")):
        said = f"checked: a part of {part} recomputed, all checksums compared"
        if not repeated:
            said = "checked: all checksums match; no chunk was selected for recomputation"
        assert str(CheckCounts(repeated)) == said
        assert str(CheckCounts(repeated, 1, 2)) == f"{said}; 1 check failed, 2 chunks retracted"
    record = Record(seconds=1.0, checks={"repeated": False, "bytes": 8, "seconds": 0.1})
    again = replace(record, checks={**record.checks, "repeated": True})
    once, twice = (NodeAccount("loops", "loops", (), records) for records in ((record,), (record, again)))
    assert "No chunk was drawn to be computed a second time." in checks_section([once]).text
    assert "A part of 1 of the chunks was computed" in checks_section([twice]).text


def test_no_fraction_is_said_and_computes_nothing_twice(store: Store, cluster: Address) -> None:
    outcome = run(plan(wrong_workflow(noise=4), store), store, cluster=cluster, checks=Checks(0.0))
    assert outcome.checks.repeated == 0
    assert "no chunk was selected for recomputation" in outcome.table()
    key = next(iter(store.keys("sometimes_wrong")))
    checks = store.record("sometimes_wrong", key)["checks"]
    assert checks["repeated"] is False and checks["bytes"] == 2 * 48 + 2 * 8


def test_the_choice_is_a_function_of_the_key_and_of_about_the_fraction() -> None:
    keys = [f"{n:064x}" for n in range(20_000)]
    chosen = [Checks(0.03).choose(key) for key in keys]
    assert chosen == [Checks(0.03).choose(key) for key in keys]
    assert abs(sum(chosen) - 600) < 5 * math.sqrt(600)
    assert all(map(Checks(1.0).choose, keys)) and not any(map(Checks(0.0).choose, keys))
    more = [Checks(0.06).choose(key) for key in keys]
    assert all(b for a, b in zip(chosen, more, strict=True) if a)
    for none in (-0.1, 1.5, math.nan):
        with pytest.raises(InputError, match="must lie in 0 to 1"):
            Checks(none)


@pytest.mark.parametrize(("wrong", "stated"), [(20, 0.182), (100, 0.634), (300, 0.951)])
def test_wrong_chunks_are_met_with_the_probability_that_is_stated(wrong: int, stated: float) -> None:
    """A fraction of 0.01, and so many chunks that a second path would contradict: 1 - 0.99^k."""
    campaigns, rng = 400, np.random.default_rng(wrong)
    keys = rng.integers(0, 2**62, (campaigns, wrong))
    met = sum(any(Checks().choose(f"{key:064x}") for key in campaign) for campaign in keys)
    assert stated == pytest.approx(1 - 0.99**wrong, abs=1e-3)
    assert abs(met / campaigns - stated) < 4 * math.sqrt(stated * (1 - stated) / campaigns)


def test_every_bit_of_every_array_counts() -> None:
    class Scratch:
        scratch = True

        def __init__(self) -> None:
            self.field = np.zeros(3)

    class Held:
        def __init__(self) -> None:
            self.links = np.arange(6.0).reshape(2, 3)
            self.tables = {"sites": np.arange(5, dtype=np.int32), "none": np.zeros((0, 3))}
            self.both = (self.links, [np.array(2.5)], Scratch())

    held = Held()
    assert [path for path, _ in arrays_of(held)] == ["links", "tables.sites", "tables.none", "both.1.0"]
    sums, effort = Sums(host_checksum), Effort()
    sums.compare("held", held, effort)
    assert effort.bytes == 48 + 20 + 8
    held.both[2].field[:] = 1
    for array in (held.links, held.tables["sites"], held.both[1][0]):
        for bit in range(0, 8 * array.nbytes, 7):
            broken.flip(array, bit)
            with pytest.raises(DisagreementError, match=r"held \(.*\) changed in memory"):
                sums.compare("held", held, effort)
            broken.flip(array, bit)
    sums.compare("held", held, effort)

"""The hand-over page: what a person needs who takes a store over, and numbers that are the store's."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from stores import demo, filled

from pipeline import Store, status
from pipeline.reading.handover import NOT_YET, handover
from pipeline.reading.handover_page import write_handover
from pipeline.running.event_log import EventLog, log_of
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.lock import driver_lock
from pipeline.worker.events import ChunkState, Event, EventKind


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that lacks two chunks: one failed, one was never begun; a third one was set aside."""
    store = filled(tmp_path / "store", demo("ab"), run="20261101-000000-aaaa", jobs=["71", "72"])
    fields, loops = sorted(store.keys("field")), sorted(store.keys("loops"))
    record = store.record("field", fields[0])
    failed = {"node": "field", "stage": "field", "key": fields[0], "coordinates": record["coordinates"]}
    with EventLog(store, "20261102-000000-bbbb") as log:
        log(Event(EventKind.RUN_STARTED, run="x", workflow="demo", missing={"field": 1}))
        log(Event(ChunkState.FAILED, **failed, error="InputError: the file is damaged <here>"))
        log(Event(EventKind.RUN_ENDED, more={"status": 1, "seconds": 3.0, "states": {}}))
    Ledger(store).add(LedgerEvent.BEGAN, job="73", chain=0, host="n1", nodes=1, missing=3)
    Ledger(store).add(LedgerEvent.STOPPED, campaign="demo", chain=0, reason="the budget is spent")
    (store.path / ".campaigns" / "demo").mkdir(parents=True)
    (store.path / ".campaigns" / "demo" / "campaign.json").write_text('{"nodes": 4}')
    store.remove("field", fields[0])
    store.remove("loops", loops[0])
    store.set_aside("loops", loops[1])
    return store


def test_facts_are_those_of_the_store(store: Store) -> None:
    facts = handover(store)
    (workflow,) = facts.workflows
    assert {(each.node, each.chunks) for each in workflow.missing} == {("field", 1), ("loops", 2)}
    reasons = {each.node: each.reason for each in workflow.missing}
    assert reasons == {"field": "InputError: the file is damaged <here>", "loops": NOT_YET}
    expected = {"field": (1, 2), "loops": (2, 4), "mean": (1, 1)}
    assert {node.node: (node.stored, node.chunks) for node in workflow.nodes} == expected
    assert facts.seconds == 8.0 and facts.joules is None
    assert {job.job: job.node_seconds for job in facts.jobs} == {"71": 120.0, "72": 120.0, "73": None}
    assert facts.codes == {"quarkline 0.1.0 (abc), Python 3.11": 4}
    assert facts.devices == {"testhost: cpu": 4}
    assert [run.run for run in facts.runs] == ["20261102-000000-bbbb", "20261101-000000-aaaa"]
    assert len(facts.damaged) == 1 and "set aside: loops/" in facts.damaged[0]
    file = store.path / ".workflows" / "demo.yaml"
    assert workflow.command == f"cd /there && quarkline run {file} --store {store.path}"
    assert file.read_text() == workflow.file == "configs: ab\n"


def test_page_is_one_file_that_says_all_of_it(store: Store, tmp_path: Path) -> None:
    with driver_lock(store, "20261103-000000-cccc"):
        page = write_handover(handover(store, ["target: met"]), tmp_path / "new" / "page.html").read_text()
    assert "3 chunks missing, driven by run 20261103-000000-cccc" in page
    texts = ["configs: ab", "quarkline run", "the file is damaged &lt;here&gt;", "0.07 node-hours"]
    texts += [
        "target: met",
        "/there is not on this machine",
        "at work, or killed",
        "demo, chain 0: the budget is spent",
    ]
    for text in (*texts, "&#34;nodes&#34;: 4", "testhost: cpu", "set aside: loops/"):
        assert text in page, text
    assert "<here>" not in page and "http" not in page.replace("http-equiv", "")


def test_what_is_damaged_is_named_and_an_old_store_without_its_file_is_told(store, tmp_path):
    (file := store.path / ".campaigns" / "demo" / "campaign.json").unlink()
    os.mkfifo(file)
    assert handover(store).campaigns == {"demo": ""}

    (key,) = store.keys("mean")
    store.location("mean", key).write_bytes(b"nothing")
    os.unlink(store.path / ".workflows" / "demo.yaml")
    facts = handover(store)
    assert any(f"mean/{key[:12]}" in text for text in facts.damaged)
    page = write_handover(facts, tmp_path / "page.html").read_text()
    assert "its file is not in the store" in page and "quarkline run /there/demo.yaml" in page


def test_a_run_without_an_event_began_when_its_name_says(store: Store, tmp_path: Path) -> None:
    run = f"{datetime.now() - timedelta(hours=2):%Y%m%d-%H%M%S}-dddd"
    log_of(store, run).parent.mkdir()
    log_of(store, run).touch()
    with driver_lock(store, run):
        assert f"run {run} is 2h" in str(status(store))
        page = write_handover(handover(store), tmp_path / "page.html").read_text()
    assert run in page and "1970" not in page

"""Mutated plans, records, chunks, ledgers, events in a store: every reader of a store answers, in words."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from outcomes import NEVER, Outcome, Tally, fuzz, write_row

from mutations import Shape

sys.path.append(str(Path(__file__).parents[1] / "pipeline"))

from bokeh.document import Document
from stores import demo, filled

from pipeline import Store, collect_garbage, open_result, plan, verify
from pipeline.planning.history import past_plans
from pipeline.planning.manifest_files import manifests
from pipeline.reading.account import account, accounts, summary
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.grid import Grid
from pipeline.reading.dashboard.facts.records import Records
from pipeline.reading.dashboard.pages import Follower, pages_with
from pipeline.reading.forecast.samples import samples
from pipeline.reading.handover import handover
from pipeline.reading.handover_page import write_handover
from pipeline.reading.status import run_status, status
from pipeline.running.event_log import LOG, TALLY, EventLog, runs
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.record import Record, canonical_json
from pipeline.transfer.belongings import bring_belongings
from pipeline.worker.events import ChunkState, Event, EventKind
from stages.base.errors import InputError
from workflows.shared.dashboard import DASHBOARD

SHORT = 8
"""Inputs of each kind in a short test, the first of which is shown by all that shows anything."""
LONG = {
    "plan": 30_000,
    "record": 25_000,
    "ledger": 20_000,
    "events": 15_000,
    "tally": 5000,
    "past plan": 3000,
}
LONG |= {"packed chunk": 1000, "metadata of an array": 1000}
"""Inputs of each kind, 10^5 in all."""

SHOWN = 200
"""Of so many inputs of a long test, one is shown by all that shows anything."""

RUN = "20261102-000000-bbbb"
WORKFLOW = demo("ab")
PAGES = pages_with(DASHBOARD)


def lines_of(store: Store) -> None:
    str(status(store))


def page_of(store: Store) -> None:
    write_handover(handover(store), store.path.parent / "page.html")


def panels_of(store: Store) -> None:
    campaign = Campaign(store, DASHBOARD.facts)
    for page in PAGES:
        document, follower = Document(), Follower(campaign, page)
        document.add_root(follower.root)
        asyncio.run(follower.look())
        for _ in range(sum(map(len, page.rows)) + 1):
            follower.show_next()
        assert "a part of this page fails" not in follower.notice.text, follower.notice.text


def plan_of(store: Store) -> None:
    list(map(str, plan(WORKFLOW, store).reasons.values()))


def garbage_of(store: Store) -> None:
    str(collect_garbage(store, [WORKFLOW], dry_run=True))


def damage_of(store: Store) -> None:
    found = verify(store)
    assert str(found) and found.checked == 7


def results_of(store: Store) -> None:
    failures = []
    for name in ("field", "loops", "mean"):
        try:
            open_result(store, name, partial=True).load()
        except InputError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def report_of(store: Store) -> None:
    nodes = accounts(store, "demo")
    account(store, "demo", nodes)
    if nodes:
        summary(nodes)


def forecast_of(store: Store) -> None:
    samples([store])


def union_of(store: Store) -> None:
    other = Store(store.path.parent / "other")
    for name in ("demo.json", "demo.yaml"):
        (other.path / ".workflows" / name).unlink(missing_ok=True)
    bring_belongings(store, other)


def manifest_of(store: Store) -> None:
    known = manifests(store)
    Grid(known)
    for manifest in known:
        for node in manifest.stored.values():
            assert all(node.files(place) is not None for place in node.chunks) and node.chunk_ids


def records_of(store: Store) -> None:
    records = Records(store)
    records.wait_for("field", store.each_key("field"))
    records.refresh(60.0)
    for key in store.each_key("field"):
        assert Record.of(store.record("field", key)).all_statistics()


def past_plans_of(store: Store) -> None:
    list(map(str, past_plans(store)))


def numbers_of(store: Store) -> None:
    for stage, key in store.chunks():
        store.load(stage, key)


def ledger_of(store: Store) -> None:
    state = Ledger(store).state()
    assert math.isfinite(state.node_seconds(2e9)) and all(job.state for job in state.jobs)


def runs_of(store: Store) -> None:
    for run in runs(store):
        str(run_status(store, run))


Reader = Callable[[Store], None]
ALL = (lines_of, page_of, panels_of)
READERS: dict[str, tuple[Reader, tuple[Reader, ...]]] = {
    "plan": (manifest_of, (*ALL, plan_of, garbage_of, results_of, report_of, union_of)),
    "past plan": (past_plans_of, (garbage_of,)),
    "record": (records_of, (page_of, panels_of, damage_of, results_of, report_of, forecast_of)),
    "packed chunk": (numbers_of, (damage_of, results_of, page_of)),
    "metadata of an array": (numbers_of, (damage_of, results_of)),
    "ledger": (ledger_of, (*ALL, union_of)),
    "events": (runs_of, ALL),
    "tally": (runs_of, (lines_of, page_of)),
}
"""Of each kind of file: who reads it, and all who show what that says."""

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 10**13, 10**400, 1e308, -1.5, float("nan"), float("inf")),
    *("", "x", "../../x", "9" * 5000, "\x1b[31m", "\ud800", "2026-01-01", [], {}, [[]], [None], [-1, 10**13]),
    *([["a"]], ["a", 1], {"a": {}}, {"": None}, {"x": [1, "y"]}, [0] * 1000, {"name": "gzip"}, [1e308] * 3),
)


def places(tree: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container of a JSON tree with each of its names or numbers."""
    if isinstance(tree, (dict, list)):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            found.append((tree, key))
            places(tree[key], found)
    return found


def value(rng: Random) -> Any:
    """One of the values, a copy of its own."""
    return json.loads(json.dumps(rng.choice(VALUES)))


def changed(rng: Random, tree: Any) -> Any:
    """A JSON tree of which a few values are of another kind, gone, elsewhere, or nested deeply."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not (known := places(tree, [])):
            return value(rng)
        holder, key = rng.choice(known)
        kind = rng.randrange(6)
        if kind == 0 and isinstance(holder, dict):
            del holder[key]
        elif kind == 1:
            other, place = rng.choice(known)
            holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 2 and isinstance(holder, dict):
            holder[rng.choice(("", "x", "../x", "time", "key", "keys"))] = holder[key]
        else:
            holder[key] = value(rng)
    return tree


def resealed(record: Any) -> Any:
    """A record whose digest is right, as somebody who means harm writes it."""
    if isinstance(record, dict) and "digest" in record:
        try:
            rest = canonical_json({name: value for name, value in record.items() if name != "digest"})
        except ValueError:
            return record
        record["digest"] = sha256(rest).hexdigest()
    return record


@dataclass(frozen=True)
class StoredFile:
    """A healthy file of a store, of a kind, which is mutated as JSON or, a third of the time, as bytes."""

    kind: str
    content: bytes

    def mutated(self, rng: Random) -> bytes:
        """One mutation of the file."""
        if rng.random() < 0.3:
            return Shape(self.content, len(self.content), text=self.kind != "packed chunk").mutated(rng)
        if self.kind in ("ledger", "events"):
            lines = self.content.splitlines()
            number = rng.randrange(len(lines))
            lines[number] = json.dumps(changed(rng, json.loads(lines[number]))).encode()
            return b"\n".join(lines) + b"\n"
        if self.kind == "packed chunk":
            return self._repacked(rng)
        tree = json.loads(self.content)
        if self.kind == "record":
            tree["attributes"] = resealed(changed(rng, tree["attributes"]))
            return json.dumps(tree if rng.random() < 0.9 else changed(rng, tree)).encode()
        return json.dumps(changed(rng, tree)).encode()

    def _repacked(self, rng: Random) -> bytes:
        """A packed chunk with metadata that say something else, its sums and seal right; or odd entries."""
        with zipfile.ZipFile(BytesIO(self.content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice([name for name in files if name.endswith("/zarr.json")])
        files[name] = json.dumps(changed(rng, json.loads(files[name]))).encode()
        record = json.loads(files["zarr.json"])
        arrays = record["attributes"]["arrays"]
        arrays[name.partition("/")[0]]["metadata"] = sha256(files[name]).hexdigest()
        resealed(record["attributes"])
        files["zarr.json"] = json.dumps(record).encode()
        target = BytesIO()
        how = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
        with zipfile.ZipFile(target, "w", how) as archive:
            for each, text in files.items():
                archive.writestr(each, text)
            if rng.random() < 0.05:
                archive.writestr("bomb", bytes(rng.choice((1 << 10, 1 << 26))))
        return target.getvalue()


def full_store(folder: Path) -> tuple[Store, dict[str, Path]]:
    """A store with everything in it, and its file of each kind."""
    filled(folder / "other", demo("cd"), run="20261103-000000-cccc")
    store = filled(folder / "store", WORKFLOW, run="20261101-000000-aaaa", jobs=["71", "72"])
    field = sorted(store.keys("field"))[0]
    about = {"node": "field", "stage": "field", "key": field, "coordinates": {"config": ("a",)}}
    with EventLog(store, RUN) as log:
        log(
            Event(
                EventKind.RUN_STARTED, run=RUN, workflow="demo", missing={"field": 2}, seconds={"field": 2.0}
            )
        )
        log(Event(EventKind.CLUSTER_READY, dashboard="http://127.0.0.1:1/secret"))
        log(Event(EventKind.STARTED, worker="tcp://1", **about))
        log(Event(EventKind.PROGRESS, worker="tcp://1", done=1, total=2, **about, more={"residual": 1e-3}))
        log(Event(ChunkState.DONE, worker="tcp://1", joules=3.0, **about))
        log(Event(ChunkState.FAILED, worker="tcp://1", **about, error="it is damaged", details="Traceback"))
        log(Event(EventKind.RUN_ENDED, more={"status": 1, "seconds": 3.0, "states": {}}))
        tally = {"read": 10, **log.state.as_dict()}
    (store.path / ".runs" / RUN / TALLY).write_text(json.dumps(tally, default=str))
    for event, facts in (
        (LedgerEvent.BUDGET, {"campaign": "demo", "node_hours": 3.0}),
        (LedgerEvent.SUBMITTED, {"campaign": "demo", "job": "73", "chain": 0, "walltime": 60.0}),
        (LedgerEvent.BEGAN, {"campaign": "demo", "job": "73", "chain": 0, "host": "n1", "nodes": 1}),
        (LedgerEvent.STOPPED, {"campaign": "demo", "chain": 0, "reason": "the budget is spent"}),
    ):
        Ledger(store).add(event, **facts)
    folder_of_field = store.location("field", field)
    plans = store.path / ".workflows"
    return store, {
        "plan": plans / "demo.json",
        "past plan": next(iter(plans.glob(".demo-*.json"))),
        "record": folder_of_field / "zarr.json",
        "metadata of an array": next(iter(folder_of_field.glob("*/zarr.json"))),
        "packed chunk": store.location("loops", sorted(store.keys("loops"))[0]),
        "ledger": store.path / ".ledger.jsonl",
        "events": store.path / ".runs" / RUN / LOG,
        "tally": store.path / ".runs" / RUN / TALLY,
    }


@pytest.mark.parametrize("kind", READERS)
def test_mutated_stores(tmp_path: Path, kind: str) -> None:
    judged(tally_of(tmp_path, kind, SHORT, shown=SHORT, seed=7741))


def test_a_store_that_is_not_mutated(tmp_path: Path) -> None:
    store, _ = full_store(tmp_path)
    for read in {read: None for reader, views in READERS.values() for read in (reader, *views)}:
        read(store)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", READERS)
def test_many_mutated_stores(tmp_path: Path, kind: str) -> None:
    tally = tally_of(tmp_path, kind, LONG[kind], SHOWN, seed=29)
    write_row(f"store: {kind}", tally)
    judged(tally)


def tally_of(folder: Path, kind: str, count: int, shown: int, seed: int) -> Tally:
    """Outcomes of mutations of the file of that kind."""
    store, files = full_store(folder)
    (reader, views), number = READERS[kind], itertools.count()
    healthy: Any = StoredFile(kind, files[kind].read_bytes())
    reader(store)

    def read_all(path: Path) -> list[InputError]:
        os.replace(path, files[kind])
        refusals = []
        for read in (reader, *(() if next(number) % shown else views)):
            try:
                read(store)
            except InputError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return refusals

    return fuzz(healthy, read_all, lambda _: Outcome.CHANGED, folder, count, seed)


def judged(tally: Tally) -> None:
    """Nothing that must never occur."""
    faults = [sample for outcome in NEVER for sample in tally.samples.get(outcome, {})]
    assert not faults, "\n".join(faults)
    assert sum(tally.counts.values())

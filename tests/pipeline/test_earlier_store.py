"""A campaign that commit 03e5c7c left half-finished is read, verified, gone on with and merged by this code.

`half`: of 20 chunks one job was stopped by SIGTERM after 7, the next was killed after 4 more, with its leases
and claims. `whole`: what `quarkline run` made of the same file. Both lay in /tmp/fx/work.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import toy_workflow

from pipeline import Store
from pipeline.store.ledger import Ledger, LedgerEntry
from pipeline.store.record import Record
from pipeline.worker.events import Event
from workflows.command import main

PACKED = Path(__file__).with_name("earlier_store.tar.gz")


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the half-finished campaign, with the other one beside it."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path, filter="data")
    for file in tmp_path.glob("half/store/.campaigns/*/*"):
        file.write_text(file.read_text().replace("/tmp/fx/work", str(tmp_path / "half")))
    (tmp_path / "installed").mkdir()
    toy_workflow.install(tmp_path / "installed")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.chdir(tmp_path / "half")
    return tmp_path / "half"


def digests(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Of every array of every chunk."""
    store = Store(folder / "store")
    records = {
        (stage, key): store.record(stage, key) for stage in store.stages() for key in store.keys(stage)
    }
    return {name: {a: each["digest"] for a, each in of["arrays"].items()} for name, of in records.items()}


def said(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    code = main(list(command))
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def test_events_records_and_ledgers_are_written_as_they_were(half: Path) -> None:
    """Key for key, whatever form they have in memory."""
    stores = [Store(half / "store"), Store(half.parent / "whole" / "store")]
    logs = [log for store in stores for log in sorted(store.path.glob(".runs/*/events.jsonl"))]
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    assert len(lines) > 40 and [Event.of(line).as_dict() for line in lines] == lines
    assert all({**line, "more": 3} == Event.of({**line, "more": 3}).as_dict() for line in lines)
    records = [
        store.record(stage, key) for store in stores for stage in store.stages() for key in store.keys(stage)
    ]
    assert [Record.of(record).as_dict() for record in records] == records
    entries = [entry for store in stores for entry in Ledger(store).contents()]
    assert {entry["event"] for entry in entries} == {"budget", "submitted", "began", "ended"}
    assert [LedgerEntry.of(entry).as_dict() for entry in entries] == entries


def test_what_was_done_is_told(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said(capsys, "status", "store", "--json"))
    expected = {"field": (4, 4), "loops": (7, 12), "config_mean": (0, 4)}
    assert {each["node"]: (each["stored"], each["chunks"]) for each in told["nodes"]} == expected
    run = told["last_run"]
    assert (run["run"], run["counts"], run["missing"]) == ("20261128-100741-bb9c", {"done": 3}, 12)
    text = said(capsys, "status", "store")
    assert "last run 20261128-100741-bb9c was interrupted: 3 done, of 12 chunks" in text
    assert "of 2.00 node-hours: jobs 102, 103 at work or gone: slurm does not answer here" in text
    assert "11 chunks read, 0 damaged" in said(capsys, "verify", "store")


def test_the_rest_is_computed(half, executed, scheduler, capsys):
    whole, before = digests(half.with_name("whole")), digests(half)
    assert len(before) == 11 and before.items() <= whole.items()
    (driver,) = half.glob("store/.drivers/*")
    driver.write_text(driver.read_text().replace('"vm"', '"elsewhere"'))  # and its batch system is not here
    assert main(["run", "toys.yaml", "--cluster", scheduler]) == 2
    told = capsys.readouterr().err
    assert "on elsewhere, job 102): wait until it ends" in told and f"or {driver}" in told
    driver.unlink()
    said(capsys, "run", "toys.yaml", "--cluster", scheduler)
    assert digests(half) == whole
    assert executed.new() == {"config_mean": 4, "loops": 5}


def test_the_rest_is_merged(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "merge", "../whole/store", "--into", "store")
    assert digests(half) == digests(half.with_name("whole"))
    assert json.loads(said(capsys, "plan", "toys.yaml", "--json"))["missing"] == []
    shutil.rmtree(half.with_name("whole"))
    assert "20 chunks read, 0 damaged" in said(capsys, "verify", "store")

"""Links in a store that point elsewhere: nothing is read, written or removed through them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stores import demo, digests, filled, tree

from pipeline import InputError, Share, Store, collect_garbage, plan, run, verify
from pipeline.planning.history import keep_plan
from pipeline.reading.hdf5 import write_hdf5
from pipeline.reading.report import write_report
from pipeline.reading.status import status
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.jobs import job_lists
from pipeline.running.event_log import EventLog, drop_old_runs, runs
from pipeline.store import lease
from pipeline.store.arrival import arrivals
from pipeline.store.checkpoint import FolderCheckpoint
from pipeline.store.durable import delete
from pipeline.store.errors import StoreError
from pipeline.store.lock import shared_lock
from pipeline.transfer.host import _PUBLISH, _STATE
from pipeline.transfer.transfer import receive

OWN = [
    *(".tmp", ".claims", ".runs", ".workflows", ".checkpoints", ".drivers", ".damaged", ".incoming"),
    *(".campaigns", ".certificates", ".forecasts", ".housekeeping", ".lease", ".lock", ".incoming.lock"),
    *(".ledger.jsonl", ".digests.jsonl", "quarkline.json"),
]
"""Everything that a store keeps beside its chunks."""


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder that looks like any of a store's, of which all 16 files survive the test."""
    folder = tmp_path / "victim"
    names = ["lock", "jobs", "events.jsonl", ".dask-jobqueue.worker.key", "zarr.json", "index.html", "c.0"]
    for number in range(14):
        path = folder / f"{number % 3:03x}" / f"{number:064x}" / names[number % len(names)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"precious {number}")
    for name in ("index.html", "tables.txt"):
        (folder / name).write_text("precious")
    before = tree(folder)
    assert len(before) == 16
    yield folder
    assert tree(folder) == before
    assert sum(1 for _ in folder.rglob("*")) == 16 + 17, "nothing was added"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of two stores. Only to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    filled(folder / "store", demo("ab"), run="20261120-1")
    filled(folder / "other", demo("c"), run="20261120-2")
    return folder


@pytest.fixture
def made(whole: Path, tmp_path: Path) -> Store:
    shutil.copytree(whole / "store", tmp_path / "store")
    return Store(tmp_path / "store")


def link(place: Path, target: Path) -> None:
    delete(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


USES: dict[str, Callable[[Path, Path], object]] = {
    "plan": lambda folder, other: plan(demo("abc"), Store(folder)),
    "verify": lambda folder, other: verify(folder, remove=True),
    "gc": lambda folder, other: collect_garbage(folder, [demo("a")]),
    "merge into": lambda folder, other: receive([Store(other)], Store(folder)),
    "merge from": lambda folder, other: receive([Store(folder)], Store(other)),
    "run": lambda folder, other: run(plan(demo("abc"), Store(folder)), folder, cluster="local"),
}


@pytest.mark.parametrize("target", ["folder", "file", "nothing"])
def test_an_entry_that_is_a_link_is_refused_by_name(made, whole, victim, tmp_path, target):
    points_to = {"folder": victim, "file": victim / "index.html", "nothing": tmp_path / "absent"}[target]
    shutil.copytree(whole / "other", tmp_path / "other")
    for name in OWN:
        entry, aside = made.path / name, tmp_path / "aside"
        if there := entry.exists():
            os.rename(entry, aside)
        link(entry, points_to)
        for use in USES.values():
            with pytest.raises(InputError, match=f"{name} is a link to {points_to}"):
                use(made.path, tmp_path / "other")
        assert not (tmp_path / "absent").exists()
        os.unlink(entry)
        if there:
            os.rename(aside, entry)
    assert verify(made.path).damaged == ()


@pytest.mark.parametrize("name", [".tmp", ".claims", ".runs", ".drivers", ".incoming", ".checkpoints"])
def test_a_link_that_comes_later_is_refused_too(made: Store, victim: Path, name: str) -> None:
    """The store was opened before."""
    link(made.path / name, victim)
    uses: list[Callable[[], object]] = [
        made.sweep,
        lambda: EventLog(made, "20261121-1"),
        lambda: drop_old_runs(made),
        lambda: arrivals(made).__enter__(),
        lambda: shared_lock(made, "20261121-1").__enter__(),
        lambda: collect_garbage(made, [demo("a")]),
    ]
    refused = []
    for use in uses:
        try:
            use()
        except StoreError as error:
            refused.append(str(error))
    assert refused and all(f"{name} is a link to {victim}" in text for text in refused)


@pytest.mark.parametrize("share", [None, Share()])
def test_a_run_beside_linked_stages_and_chunks(made, victim, cluster, share):
    planned = plan(demo("ab"), made)
    key = planned.chunks[0].key
    for place in ("field", f"field/{key[:3]}", f"field/{key[:3]}/{key}"):
        aside = made.path.with_name("aside")
        os.rename(made.path / place, aside)
        link(made.path / place, victim)
        uses = (plan, lambda w, s: collect_garbage(s, [demo("z")]), lambda w, s: verify(s, remove=True))
        for use in uses:
            with pytest.raises(InputError, match=f"{place} is a link to {victim}, and links inside a store"):
                use(demo("ab"), made.path)
        outcome = run(planned.again({key}, {key}), made, cluster=cluster, share=share)
        assert [f"{place} is a link to {victim}" in str(failure) for failure in outcome.failures] == [True]
        os.unlink(made.path / place)
        os.rename(aside, made.path / place)
    assert not plan(demo("ab"), made.path).missing


def inner_link(store: Store, victim: Path, kind: str) -> tuple[str, str]:
    """A chunk with the same content, of which one thing is a link; its stage and key."""
    key = min(store.keys("field"))
    chunk = store.location("field", key)
    array = next(path for path in chunk.iterdir() if path.is_dir())
    place = {"array": array, "piece": next(array.glob("c*")), "record": chunk / "zarr.json"}[kind]
    os.rename(place, victim.with_name("elsewhere"))
    place.symlink_to(victim.with_name("elsewhere"))
    return "field", key


@pytest.mark.parametrize("kind", ["array", "piece", "record"])
def test_a_link_within_a_chunk_is_damage(made, victim, tmp_path, kind, cluster):
    """Equal content counts for nothing: the store would not hold what it says."""
    whole = digests(made)
    chunk = inner_link(made, victim, kind)
    elsewhere = tree(tmp_path / "elsewhere") or (tmp_path / "elsewhere").read_bytes()
    assert [(d.stage, d.key) for d in verify(made).damaged] == [chunk]
    receipt = receive([made], Store(tmp_path / "other"))
    assert len(receipt.damaged) == 1 and chunk[1] not in Store(tmp_path / "other").keys("field")
    assert not [path for path in (tmp_path / "other").rglob("*") if path.is_symlink()]
    if kind != "record":
        assert made.gaps(*chunk[:1], [chunk[1]]) == {chunk[1]: True}
    verify(made, remove=True)
    assert digests(made).keys() == whole.keys() - {"/".join(chunk)}
    assert (tree(tmp_path / "elsewhere") or (tmp_path / "elsewhere").read_bytes()) == elsewhere


def test_links_within_a_store_are_not_followed(made: Store, victim: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (made.path / "notes").symlink_to(tmp_path / "notes")
    (made.path / "readme.txt").symlink_to(victim / "index.html")
    garbage = collect_garbage(made, [demo("ab")])
    assert garbage.foreign == ("notes", "readme.txt") and not garbage.chunks

    (made.path / ".incoming").mkdir()
    (made.path / ".incoming" / "field").symlink_to(victim)
    with arrivals(made) as folder:
        assert not list(folder.iterdir())

    chunk = made.location("field", min(made.keys("field")))
    for number, place in enumerate([chunk, chunk / next(p.name for p in chunk.iterdir() if p.is_dir())]):
        (place / f"more{number}").symlink_to(victim)
        (place / f"less{number}").symlink_to(victim / "nothing")
    garbage = collect_garbage(made, [demo("z")])
    assert garbage.removed and not made.keys("field")


def test_runs_and_checkpoints_that_are_links_belong_to_nobody(made: Store, victim: Path) -> None:
    inner = victim / "000" / f"{0:064x}"
    for name in ("0-old", "1-old"):
        (made.path / ".runs" / name).symlink_to(victim / "000" / f"{24:064x}")
    (made.path / ".checkpoints").mkdir()
    (made.path / ".checkpoints" / "field").symlink_to(victim / "000")
    (made.path / ".checkpoints" / "loops").mkdir()
    (made.path / ".checkpoints" / "loops" / f"{1:064x}").symlink_to(inner)
    assert runs(made) == ["20261120-1"] and not job_lists(made)
    assert collect_garbage(made, [demo("z")]).checkpoints == 0
    told: list[str] = []
    folder = made.path / ".checkpoints" / "field" / f"{0:064x}"
    checkpoint = FolderCheckpoint(folder, told.append, made.path)
    assert checkpoint.load() is None
    assert "is a link" in told[0]
    with pytest.raises(StoreError, match="0-old is a link"):
        EventLog(made, "0-old")


def test_a_store_that_is_reached_by_links_works(tmp_path: Path, cluster: Address, log_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    (tmp_path / "here").symlink_to(tmp_path / "scratch" / "store")  # the last one is not made yet
    store = Store(tmp_path / "here")
    workflow = demo("ab")
    assert run(plan(workflow, store), store, cluster=cluster).exit_status == 0
    assert (tmp_path / "disk" / "store" / "quarkline.json").exists()
    assert not verify(store).damaged and not plan(workflow, tmp_path / "scratch" / "store").missing
    assert receive([Store(tmp_path / "here")], Store(tmp_path / "copy")).damaged == []
    assert not collect_garbage(store, [workflow]).chunks


def test_reports_and_files_of_results_replace_links(victim: Path, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    folder = tmp_path / "report"
    folder.mkdir()
    for name in ("index.html", "index.html.partial", "tables.txt", "mean.h5", f".mean.h5.{os.getpid()}"):
        (folder / name).symlink_to(victim / "index.html")
    page = write_report(folder, "title", "subtitle", [])
    write_hdf5(xarray.Dataset({"mean": ("time", [1.0, 2.0])}), folder / "mean.h5")
    assert page.read_text().startswith("<!DOCTYPE html>") and not page.is_symlink()
    expected = {"index.html.partial", f".mean.h5.{os.getpid()}"}
    assert {p.name for p in folder.iterdir() if p.is_symlink()} == expected


def test_shell_scripts_of_a_transfer_follow_no_links(made: Store, victim: Path, tmp_path: Path) -> None:
    """They work on the other machine, for `push` and `pull`; the store itself may be reached by a link."""

    def script(text: str, *arguments: str, names: str = "") -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", text, "sh", str(tmp_path / "here"), *arguments]
        return subprocess.run(words, input=names, capture_output=True, text=True, check=False)

    (tmp_path / "here").symlink_to(made.path)
    assert json.loads(script(_STATE).stdout) == {"format": 2}
    for name in (".incoming", ".workflows", ".ledger.jsonl"):
        link(made.path / name, victim)
        done = script(_STATE)
        assert done.returncode == 8 and f"{name} is a link" in done.stderr and not done.stdout
        os.unlink(made.path / name)
    (made.path / ".incoming" / "push").mkdir(parents=True)
    for stage, shelf in (("linked", ""), ("real", "/0ab")):
        (made.path / ".incoming" / "push" / "chunk").write_text("new")
        link(made.path / f"{stage}{shelf}", victim)
        done = script(_PUBLISH, ".incoming/push", names=f"chunk {stage}/0ab/key.zarr.zip\n")
        assert done.returncode == 8 and f"{stage}{shelf} is a link" in done.stderr
    assert script(_PUBLISH, ".incoming/push", names="chunk new/0ab/key.zarr.zip\n").returncode == 0
    assert (made.path / "new" / "0ab" / "key.zarr.zip").read_text() == "new"


def test_deleting_takes_the_link_and_not_its_target(victim: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(victim)
    delete(tmp_path / "link")
    assert not os.path.lexists(tmp_path / "link")
    shutil.copytree(victim, tmp_path / "copy")
    (tmp_path / "copy" / "link").symlink_to(victim)
    delete(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    "name",
    [
        *(".workflows/demo.json", ".workflows/demo.yaml", ".digests.jsonl", ".runs/20260101/jobs"),
        *(".drivers/x", ".claims/x.0", ".lease"),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "folder", "bytes", "long"])
def test_what_is_no_file_of_the_store_stops_nobody(made, tmp_path, name, kind, monkeypatch):
    """A pipe that is opened never answers."""
    monkeypatch.setattr(lease, "STALE", 0.2)
    monkeypatch.setattr(lease, "BEAT", 0.05)
    if kind == "long" and name == ".digests.jsonl":
        pytest.skip("it is read line by line, to its end")
    place(made.path / name, kind)
    assert status(made).store
    assert len(plan(demo("ab"), made).missing) == 0
    receive([made], Store(tmp_path / "other"))
    if kind != "folder" or not name.startswith(".workflows"):
        keep_plan(made, plan(demo("ab"), made))
    if name.startswith((".drivers", ".claims")):
        with shared_lock(made, "mine") as claims:
            assert claims.take(["piece"])
    elif name != ".lease" or kind == "bytes":
        assert collect_garbage(made, [demo("a")]).removed


@pytest.mark.parametrize("part", ["packed", "record", "piece"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_within_a_chunk_is_damage(made: Store, part: str, kind: str) -> None:
    stage = "loops" if part == "packed" else "field"
    key = min(made.keys(stage))
    chunk = made.location(stage, key)
    parts = {"packed": chunk, "record": chunk / "zarr.json", "piece": next(chunk.glob("*/c.*"), chunk)}
    place(parts[part], kind)
    assert made.gaps(stage, [key]) == {key: True} or part == "record"
    assert [(damage.stage, damage.key) for damage in verify(made).damaged] == [(stage, key)]
    with pytest.raises(InputError, match="is damaged"):
        made.load(stage, key)


def place(path: Path, kind: str) -> None:
    """Put what is no text into the place of a file."""
    delete(path)
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "long":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.write_bytes(b"\xff\xfe\0[")

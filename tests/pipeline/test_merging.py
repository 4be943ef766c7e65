"""Merging stores: the same chunk once, nothing replaced, nothing damaged brought, killed and gone on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stores import demo, digests, filled, tree

from pipeline import InputError, Store, collect_garbage, open_result, plan, status, verify
from pipeline.planning.manifest import Manifest
from pipeline.planning.workflow import Source
from pipeline.running.event_log import runs
from pipeline.store import arrival
from pipeline.store.errors import StoreFullError
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.lock import driver_lock
from pipeline.transfer import transfer as transferring
from pipeline.transfer.bucket import Bucket
from pipeline.transfer.offer import Selection
from pipeline.transfer.transfer import pull, receive

Pair = tuple[Store, Store]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two stores of one workflow, which share the configuration b."""
    first = filled(tmp_path / "first", demo("ab"), run="20261101-000000-aaaa", jobs=["7"])
    second = filled(tmp_path / "second", demo("bc"), run="20261102-000000-bbbb", jobs=["8", "9"])
    return first, second


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return Store(tmp_path / "target")


@pytest.mark.parametrize("links", [True, False])
def test_merged_stores_hold_what_each_held_once(pair: Pair, target: Store, links: bool) -> None:
    before = [tree(store.path) for store in pair]
    receipt = receive(pair, target, links=links)
    assert digests(target) == {**digests(pair[0]), **digests(pair[1])}
    assert (receipt.brought, receipt.linked, receipt.is_whole) == (11, 11 if links else 0, True)
    assert verify(target).damaged == ()
    assert [tree(store.path) for store in pair] == before
    assert not (target.path / arrival.ARRIVALS).exists()
    again = receive(pair, target, links=links)
    assert (again.brought, again.present, again.notes) == (0, 11, [])


def test_plans_name_the_results_of_both_and_only_averages_are_computed_again(pair, target):
    receive(pair, target)
    loops = open_result(target, "loops")
    assert list(loops.config) == ["a", "b", "c"] and loops.attrs["ensemble"] == "toy"
    assert "configurations" not in loops.attrs  # it was that of either store
    np.testing.assert_array_equal(
        loops.current.sel(config="c"), open_result(pair[1], "loops").current.sel(config="c")
    )
    with pytest.raises(InputError, match="no result named 'mean'"):
        open_result(target, "mean")
    missing = plan(demo("abc"), target).missing
    assert [chunk.node.name for chunk in missing] == ["mean"]


def test_plans_that_say_more_or_other_things_stay_as_they_are(pair: Pair, tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole", demo("abc"), run="20261103-000000-cccc")
    before = (whole.path / ".workflows" / "demo.json").read_bytes()
    receive(pair, whole)
    assert (whole.path / ".workflows" / "demo.json").read_bytes() == before
    assert sorted(open_result(whole, "mean").data_vars) == ["count", "mean"]

    other = filled(tmp_path / "other", demo("ab", mass=0.7), run="20261103-000000-cccc")
    receipt = receive([other], pair[0])
    assert any("differ in more than coordinates" in note for note in receipt.notes)
    manifest = Manifest.read(pair[0], "demo")
    assert manifest is not None and manifest.nodes["loops"].content["parameters"]["mass"] == 0.5
    assert len(plan(demo("ab", mass=0.7), pair[0]).missing) == 0


def test_histories_parameter_files_and_what_jobs_cost_come_along_and_nothing_that_steers(pair, target):
    (pair[1].path / ".runs" / runs(pair[1])[0] / "jobs").write_text("4711\n")
    Ledger(pair[1]).add(LedgerEvent.BUDGET, node_hours=1.0, joules=None)
    receive(pair, target)
    receive(pair, target)
    assert runs(target) == [*runs(pair[0]), *runs(pair[1])]
    assert status(target).left_jobs == ()
    entries = list(Ledger(target).contents())
    assert [entry["job"] for entry in entries] == ["7", "8", "9"]
    assert {entry["from"] for entry in entries[1:]} == {str(pair[1].path)}
    files = sorted((target.path / ".workflows").glob("*.yaml"))
    assert [file.read_text() for file in files] == ["configs: bc\n", "configs: ab\n"]
    assert files[1].name == "demo.yaml"


def test_a_run_at_work_keeps_its_plan_and_chunks_come_all_the_same(pair: Pair) -> None:
    before = (pair[0].path / ".workflows" / "demo.json").read_bytes()
    with driver_lock(pair[0], "20261104-000000-dddd"):
        receipt = receive([pair[1]], pair[0])
        assert (pair[0].path / ".workflows" / "demo.json").read_bytes() == before
    assert receipt.brought == 4 and any("20261104-000000-dddd" in note for note in receipt.notes)
    receive([pair[1]], pair[0])
    assert list(open_result(pair[0], "loops").config) == ["a", "b", "c"]


def test_garbage_collection_removes_what_an_interrupted_transfer_left(pair: Pair) -> None:
    (pair[0].path / arrival.ARRIVALS / "loops").mkdir(parents=True)
    with arrival.arrivals(pair[0]):
        collect_garbage(pair[0], [demo("ab")])
        assert (pair[0].path / arrival.ARRIVALS).exists()  # a transfer is at work
    (pair[0].path / arrival.ARRIVALS / "loops").mkdir(parents=True)
    collect_garbage(pair[0], [demo("ab")])
    assert not (pair[0].path / arrival.ARRIVALS).exists()


def touched(target: Store) -> int:
    """When drafts were last made or published in a store."""
    try:
        return (target.path / arrival.ARRIVALS).stat().st_mtime_ns
    except OSError:
        return 0


@pytest.mark.slow
def test_a_merge_that_is_killed_again_and_again_ends_whole(pair: Pair, target: Store) -> None:
    expected, kills = {**digests(pair[0]), **digests(pair[1])}, 0
    words = ["merge", "--copy", "--into", str(target.path), *(str(store.path) for store in pair)]
    program = f"import sys; from workflows.command import main; sys.exit(main({words!r}))"
    for delay in np.linspace(0.0, 0.1, 12):
        before = touched(target)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while touched(target) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(delay)
        kills += process.poll() is None
        process.kill()
        process.wait()
        if target.exists():
            assert verify(target).damaged == ()
            assert digests(target).items() <= expected.items()
    assert kills > 3
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert digests(target) == expected and not (target.path / arrival.ARRIVALS).exists()


def change(store: Store, stage: str, amount: float) -> str:
    """Replace a chunk by one of other numbers under the same key, as another device might compute it."""
    key = min(store.keys(stage))
    record, arrays = store.record(stage, key), store.load(stage, key)
    store.remove(stage, key)
    dims = {name: tuple(about["dims"]) for name, about in record["arrays"].items()}
    record["device"] = "another device"
    store.commit(stage, key, {name: value * (1 + amount) for name, value in arrays.items()}, dims, record)
    return key


def test_other_numbers_under_one_key_are_named_and_nothing_is_brought(pair, target, tmp_path):
    twin = filled(tmp_path / "twin", demo("ab"), run="20261103-000000-cccc")
    key = change(twin, "loops", 1e-12)
    with pytest.raises(InputError) as refusal:
        receive([pair[0], twin], target)
    text = str(refusal.value)
    assert (
        f"loops/{key[:12]}: current, total in {pair[0].path} (cpu) and {twin.path} (another device)" in text
    )
    assert "at most 1.0e-12" in text and "--keep-first" in text
    assert not target.exists()
    receipt = receive([twin, pair[0]], target, keep_first=True)
    assert len(receipt.conflicts) == 1 and receipt.is_whole
    assert digests(target) == digests(twin)
    before = digests(twin)  # what the target holds is never replaced
    receive([pair[0]], twin, keep_first=True)
    assert digests(twin) == before


def damage(store: Store, stage: str) -> str:
    """Change a byte in the middle of a chunk's numbers."""
    key = min(store.keys(stage))
    path = store.location(stage, key)
    file = next(path.rglob("c.*")) if path.is_dir() else path
    content = bytearray(file.read_bytes())
    content[content.index(b"/c.") + 12 if not path.is_dir() else 3] ^= 1
    os.unlink(file)
    file.write_bytes(content)
    return key


@pytest.mark.parametrize("stage", ["field", "loops"])
def test_a_damaged_chunk_is_not_brought_and_is_taken_from_where_it_is_whole(pair, target, tmp_path, stage):
    twin = filled(tmp_path / "twin", demo("ab"), run="20261101-000000-aaaa")
    expected = digests(pair[0])
    key = damage(pair[0], stage)
    receipt = receive([pair[0]], target)
    assert not receipt.is_whole and f"{stage}/{key[:12]} in {pair[0].path}" in receipt.damaged[0]
    assert not target.has(stage, key) and receipt.brought == 6
    assert verify(target).damaged == ()
    assert receive([twin], target).brought == 1
    assert digests(target) == expected
    together = receive([pair[0], twin], Store(tmp_path / "together"))
    assert together.brought == 7 and any(str(pair[0].path) in damaged for damaged in together.damaged)


def test_a_merge_that_ends_anywhere_goes_on(pair, target, monkeypatch):
    checked: Callable[..., object] = transferring.whole_record
    calls: list[str] = []

    def interrupted(path: Path, stage: str, key: str) -> object:
        calls.append(key)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return checked(path, stage, key)

    monkeypatch.setattr(transferring, "whole_record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        receive(pair, target, links=False)
    monkeypatch.undo()
    come = sum(len(target.keys(stage)) for stage in target.stages())
    assert 0 < come < 11 and verify(target).damaged == ()
    assert receive(pair, target, links=False).brought == 11 - come
    assert not (target.path / arrival.ARRIVALS).exists()


def test_what_an_interrupted_merge_linked_is_not_written_into(pair, target, tmp_path):
    """A pull fetches the same chunk with another record: the merged store's file has two names till then."""
    there = filled(tmp_path / "there", demo("ab"), run="20261103-000000-cccc", device="another one")
    before = tree(pair[0].path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        receive([pair[0]], target, listener=interrupted)
    assert pull(Bucket(there.path.as_uri()), target).is_whole
    assert tree(pair[0].path) == before and verify(pair[0]).damaged == ()
    assert digests(target) == digests(there)


def test_chunks_of_format_1_find_their_place(pair: Pair, target: Store) -> None:
    source = pair[0]
    for key in source.keys("field"):
        os.rename(source.location("field", key), source.path / "field" / key)
    expected = digests(source)
    receive([source], target)
    assert digests(target) == expected
    assert all(target.location("field", key).parent.name == key[:3] for key in target.keys("field"))


def test_parts_of_a_store(pair: Pair, target: Store, tmp_path: Path) -> None:
    receive([pair[0]], target, Selection(names=("loops",)))
    assert target.stages() == ["loops"]
    small = Store(tmp_path / "small")
    receive([pair[0]], small, Selection(results=lambda manifests: ()))
    assert small.stages() == ["loops", "mean"]
    with pytest.raises(InputError, match="no stage or node is named 'loosp': did you mean 'loops'"):
        receive([pair[0]], target, Selection(names=("loosp",)))


def test_equal_numbers_of_two_runs_are_one_chunk(tmp_path: Path, target: Store) -> None:
    """Their records differ: each says when and how long. Bytes that came are told up to all."""
    stores = [Store(tmp_path / name) for name in ("first", "second")]
    for seconds, store in enumerate(stores):
        store.create()
        store.commit("field", "f" * 64, {"values": np.ones(3)}, {"values": ("site",)}, {"seconds": seconds})
    receipt = receive(stores, target)
    assert (receipt.brought, receipt.conflicts) == (1, [])

    told: list[tuple[int, int]] = []
    came = transferring.progress(10, lambda *numbers: told.append(numbers))
    came(7)
    came(7)
    assert told == [(7, 10), (10, 10)]


def test_two_transfers_do_not_meet_and_too_little_room_is_said_before_anything_is_copied(
    pair: Pair, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.create()
    with arrival.arrivals(target), pytest.raises(InputError, match="wait until that has ended"):
        receive(pair, target)

    monkeypatch.setattr(transferring.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100}))
    with pytest.raises(StoreFullError, match="100 B are free: make room"):
        receive(pair, target, links=False)
    assert target.stages() == []
    assert receive(pair, target).linked == 11  # which takes no room


def test_results_of_each_file_of_a_workflow_are_there_before_and_after(tmp_path: Path) -> None:
    """Also of one file with several values; a file is named by its path, its end, and what was set in it."""
    store = Store(tmp_path / "one")
    masses = {"/a/x.yaml": 0.1, "/b/x.yaml": 0.2, "/a/y.yaml": 0.3, "/a/y.yaml --set mass=4": 0.4}

    def run(label: str) -> None:
        path, _, change = label.partition(" --set ")
        workflow = demo("ab", mass=masses[label])
        workflow.source = Source("text", path, "/", (change,) if change else ())
        filled(store.path, workflow, run="20261101-000000-aaaa")

    for label in (*masses, "/a/x.yaml"):
        run(label)
    merged = Store(tmp_path / "two")
    merged.create()
    receive([store], merged)
    other = filled(tmp_path / "three", demo("ab", mass=0.9), run="20261102-000000-bbbb")
    receive([store], other)
    for label, mass in {**masses, "/there/demo.yaml": 0.9}.items():
        assert open_result(other, "loops", workflow=label).attrs["parameters"] == {"mass": mass}
    for each in (store, merged):
        assert set(status(each).files["demo"]) == set(masses)
        for label, mass in masses.items():
            assert open_result(each, "loops", workflow=label).attrs["parameters"] == {"mass": mass}
        assert open_result(each, "loops").attrs["parameters"] == {"mass": 0.1}
        assert open_result(each, "loops", workflow=Path("y.yaml")).attrs["parameters"] == {"mass": 0.3}
        for name, said in {
            "x.yaml": "of several files x.yaml: say which",
            "z.yaml": "no results of z.yaml",
        }.items():
            with pytest.raises(InputError, match=said):
                open_result(each, "loops", workflow=name)

"""Checkpoints: whole or not there, one user at a time, gone when they are no longer needed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_stages as toys

from pipeline import At, FolderCheckpoint, Outcome, Place, Store, Workflow, collect_garbage, plan, run, status
from pipeline.store import checkpoint as module
from pipeline.store.durable import is_at

STATE = {"basis": np.arange(24.0).reshape(2, 12) * 1j, "done": np.array(3), "history": np.zeros(0)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / ".checkpoints" / "space" / ("c4" * 32)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every save is done."""
    monkeypatch.setattr(module, "FIRST_SAVE", 0.0)
    monkeypatch.setattr(module, "SHARE", np.inf)


def keep(folder: Path, **arrays: Any) -> None:
    with closing(FolderCheckpoint(folder)) as made:
        made.save(lambda: arrays)


@pytest.mark.usefixtures("always")
def test_the_last_state_is_read_back(folder: Path) -> None:
    keep(folder, **STATE)
    keep(folder, **{**STATE, "done": np.array(4)})
    found = FolderCheckpoint(folder).load()
    assert found is not None and found["done"] == 4
    np.testing.assert_array_equal(found["basis"], STATE["basis"])
    assert found["history"].shape == (0,)
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "state-00000002"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("saved_before", [True, False])
def test_a_store_that_vanished_is_not_made_anew(folder: Path, saved_before: bool) -> None:
    store, told = folder.parents[2], list[str]()
    store.mkdir()
    with closing(FolderCheckpoint(folder, told.append, within=store)) as made:
        if saved_before:
            made.save(lambda: STATE)
        store.rename(store.with_name("away"))
        made.save(lambda: STATE)
    assert "No such file or directory" in told[0]
    assert not store.exists()


def test_nothing_saved_is_none_and_makes_no_folder(folder: Path) -> None:
    """A state that is not saved is not made: copying one from a device takes long."""
    fresh = FolderCheckpoint(folder)
    assert fresh.load() is None
    fresh.remove()
    assert not folder.exists()

    def state() -> dict[str, Any]:
        raise AssertionError("asked for a state too early")

    with closing(FolderCheckpoint(folder)) as made:
        made.save(state)
    assert not list(folder.glob("state-*"))


def test_saving_takes_a_tenth_of_the_time_at_most(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    saved: list[float] = []
    write = module._write

    def slow(draft: Path, arrays: Mapping[str, Any]) -> None:
        nonlocal now
        saved.append(now)
        write(draft, arrays)
        now += 2

    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    monkeypatch.setattr(module, "_write", slow)
    made = FolderCheckpoint(folder)
    for _ in range(100):
        now += 1
        made.save(lambda: {"x": np.zeros(1)})
    assert saved == [101.0, 123.0, 145.0, 167.0, 189.0]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("damage", ["piece", "gone", "record"])
def test_a_damaged_state_is_none_with_a_message(folder: Path, damage: str) -> None:
    keep(folder, **STATE)
    state = folder / "state-00000001"
    if damage == "record":
        (state / "zarr.json").write_text("{}")
    else:
        (state / "basis" / "c.0.0").unlink()
    if damage == "piece":
        (state / "basis" / "c.0.0").write_bytes(b"x" * 388)
    told: list[str] = []
    assert FolderCheckpoint(folder, told.append).load() is None
    assert len(told) == 1 and "is damaged" in told[0] and "it is left out" in told[0]


@pytest.mark.usefixtures("always")
def test_a_save_that_was_cut_off_leaves_the_state_before(folder, monkeypatch):
    keep(folder, **STATE)

    def killed(draft: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(module, "flush_group", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(folder, done=np.array(9))
    found = FolderCheckpoint(folder).load()
    assert found is not None and found["done"] == 3
    with monkeypatch.context() as cut:  # after the new state has its name, before the old one goes
        cut.setattr(module, "flush", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(folder, done=np.array(9))
    found = FolderCheckpoint(folder).load()
    assert found is not None and found["done"] == 9
    keep(folder, done=np.array(10))
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "state-00000003"]


@pytest.mark.usefixtures("always")
def test_a_full_disk_does_not_stop_the_computation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, **STATE)

    def full(draft: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "flush_group", full)
    told: list[str] = []
    made = FolderCheckpoint(folder, told.append)
    made.save(lambda: {"done": np.array(5)})
    assert "cannot be written: No space left" in told[0]
    found = made.load()
    assert found is not None and found["done"] == 3
    assert not list(folder.glob("draft-*"))


@pytest.mark.usefixtures("always")
def test_two_never_share_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, told = FolderCheckpoint(folder), []
    first.save(lambda: STATE)
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    second = FolderCheckpoint(folder, told.append)
    assert second.load() is None
    second.save(lambda: {"done": np.array(99)})
    second.remove()
    assert len(told) == 1 and "cannot be used" in told[0]
    first.close()
    found = FolderCheckpoint(folder).load()
    assert found is not None and found["done"] == 3


@pytest.mark.usefixtures("always")
def test_who_waited_for_a_folder_that_is_then_removed_starts_a_new_one(folder: Path) -> None:
    first = FolderCheckpoint(folder)
    first.save(lambda: STATE)
    with open(folder / "lock", "ab") as waiting:
        first.remove()
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not is_at(waiting.fileno(), folder / "lock")
    keep(folder, done=np.array(1))
    assert FolderCheckpoint(folder).load() is not None


@pytest.mark.usefixtures("always")
def test_a_notebook_may_keep_one_where_it_likes(tmp_path: Path) -> None:
    assert At(config="a").checkpoint is None
    kept = FolderCheckpoint(tmp_path / "here")
    at = At(config="a", checkpoint=kept)
    half, whole = toys.steps(at=at, number=4), toys.steps(at=At(config="a"), number=9)
    assert not np.array_equal(half.values, whole.values)
    np.testing.assert_array_equal(toys.steps(at=at, number=9).values, whole.values)
    assert at.statistics["first"] == 4


def steps(number: int = 5, configs: str = "a") -> Workflow:
    w = Workflow("long")
    w.add(toys.steps, place=Place(over={"config": list(configs)}), number=number)
    return w


def checkpoint_of(store: Store, workflow: Workflow) -> Path:
    (chunk,) = plan(workflow, store).chunks
    return store.checkpoints / "steps" / chunk.key


@pytest.mark.usefixtures("always")
def test_a_run_goes_on_from_a_checkpoint_and_removes_it(compute, store, executed):
    store.create()
    where = checkpoint_of(store, steps())
    keep(where, values=np.full(6, 0.5), done=np.array(3))
    assert "in flight: steps, checkpoint of" in str(status(store))
    compute(steps())
    assert executed.new() == {"steps": 2}
    assert not store.checkpoints.exists()
    assert "in flight" not in str(status(store))


@pytest.mark.usefixtures("always")
def test_a_damaged_checkpoint_is_told_and_the_chunk_is_computed_anew(cluster, store, executed):
    store.create()
    where = checkpoint_of(store, steps())
    keep(where, values=np.full(6, 0.5), done=np.array(3))
    (where / "state-00000001" / "values" / "c.0").unlink()
    events: list[dict[str, Any]] = []
    run(plan(steps(), store), store, cluster=cluster, listener=events.append)
    assert executed.new() == {"steps": 5}
    (note,) = [event for event in events if event["event"] == "note"]
    assert "is damaged (values/zarr.json says that there are 1 pieces, and 1 are gone)" in note["message"]
    assert note["node"] == "steps"
    assert "1 done, of 1 chunk" in str(status(store))


@pytest.mark.usefixtures("always")
def test_garbage_and_sweeping(compute: Callable[[Workflow], Outcome], store: Store) -> None:
    """What a workflow still wants stays; what it does not, and what is committed, goes."""
    compute(steps())
    wanted, unwanted = (checkpoint_of(store, steps(number)) for number in (7, 8))
    committed = checkpoint_of(store, steps())
    for folder in (wanted, unwanted, committed):
        keep(folder, done=np.array(1))
    store.sweep()
    assert (wanted.exists(), unwanted.exists(), committed.exists()) == (True, True, False)
    garbage = collect_garbage(store, [steps(), steps(7)], dry_run=True)
    assert garbage.checkpoints == 1 and unwanted.exists()
    assert str(collect_garbage(store, [steps(), steps(7)])).startswith("no chunk, 1 checkpoint (")
    assert (wanted.exists(), unwanted.exists()) == (True, False)

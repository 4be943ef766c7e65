"""Faults of the store: swapped, flipped, purged chunks, errors that pass, file systems without locks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_stages as toys

from pipeline import InputError, Place, Store, Workflow, collect_garbage, plan, verify
from pipeline.planning.history import keep_plan, past_plans
from pipeline.planning.workflow import Source
from pipeline.reading.gc import Garbage
from pipeline.running.event_log import RUNS_KEPT, drop_old_runs, runs
from pipeline.store import group, lease
from pipeline.store.errors import DamagedChunkError, StoreError, UnreadableChunkError
from pipeline.store.lock import current_driver, driver_lock
from pipeline.store.packed import unpacked
from pipeline.store.record import RECORD_BYTES, sealed
from pipeline.transfer.transfer import receive

KEYS = ("3c" * 32, "b7" * 32)
SMALL = {"current": np.arange(48.0).reshape(2, 3, 8) * (1 - 3j), "total": np.arange(2)}
DIMS = {"current": ("noise", "direction", "time"), "total": ("noise",)}
RECORD = {"version": "1", "seconds": 0.25, "statistics": {"iterations": [7, 9], "residual": 3e-9}}


@pytest.fixture(params=["packed", "folder"])
def made(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two chunks of one stage, with the same shapes."""
    monkeypatch.setattr("pipeline.store.store.PACKED_BYTES", 1 << 20 if request.param == "packed" else -1)
    store.create()
    for factor, key in enumerate(KEYS, start=1):
        store.commit("loops", key, {name: factor * a for name, a in SMALL.items()}, DIMS, RECORD)
    return store


def files_of(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]


def test_chunks_that_changed_places_are_seen_by_every_read(made: Store, tmp_path: Path) -> None:
    one, two = (made.location("loops", key) for key in KEYS)
    shutil.move(one, tmp_path / "aside")
    shutil.move(two, one)
    shutil.move(tmp_path / "aside", two)
    for read in (made.record, made.load, made.arrays):
        with pytest.raises(DamagedChunkError, match="that of another chunk, with key"):
            read("loops", KEYS[0])
    assert len(verify(made).damaged) == 2


def test_pieces_that_changed_places_are_seen_when_they_are_read(store, monkeypatch):
    monkeypatch.setattr("pipeline.store.store.PACKED_BYTES", -1)
    store.create()
    for factor, key in enumerate(KEYS, start=1):
        store.commit("loops", key, {name: factor * a for name, a in SMALL.items()}, DIMS, RECORD)
    piece = Path("current") / "c.0.0.0"
    shutil.copy(store.location("loops", KEYS[1]) / piece, store.location("loops", KEYS[0]) / piece)
    stored = store.arrays("loops", KEYS[0])
    np.testing.assert_array_equal(stored["total"], SMALL["total"])
    with pytest.raises(DamagedChunkError, match="is not the one that its record names"):
        stored["current"][0]


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=[pytest.mark.faults, pytest.mark.slow])])
def test_no_changed_byte_changes_what_is_read(made: Store, step: int) -> None:
    """Every `step`-th byte of every file: an error, or the very same record and numbers."""
    record = made.record("loops", KEYS[0])
    for path in files_of(made.location("loops", KEYS[0])):
        content = path.read_bytes()
        for k in range(0, len(content), step):
            path.write_bytes(content[:k] + bytes([content[k] ^ (1 << k % 8)]) + content[k + 1 :])
            try:
                assert made.record("loops", KEYS[0]) == record
                for name, array in made.load("loops", KEYS[0]).items():
                    assert array.dtype == SMALL[name].dtype
                    np.testing.assert_array_equal(array, SMALL[name])
            except DamagedChunkError:
                continue
        path.write_bytes(content)
    assert made.load("loops", KEYS[0])


Forgery = Callable[[dict[str, Any]], None]
"""Changes the metadata of an array."""


def forged(store: Store, key: str, forge: Forgery, extra: bytes = b"") -> None:
    """Replace a chunk by one with other metadata of its array, all sums and the seal right."""
    place = store.location("loops", key)
    files = unpacked(place.read_bytes()) if place.is_file() else {}
    if not files:
        files = {
            str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()
        }
    metadata, whole = json.loads(files["total/zarr.json"]), json.loads(files["zarr.json"])
    forge(metadata)
    files["total/zarr.json"] = json.dumps(metadata).encode()
    about = whole["attributes"]["arrays"]["total"]
    about["metadata"] = sha256(files["total/zarr.json"]).hexdigest()
    whole["attributes"] = sealed(whole["attributes"])
    files["zarr.json"] = json.dumps(whole).encode()
    if not place.is_file():
        for each, content in files.items():
            (place / each).write_bytes(content)
        return
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, content in files.items():
            archive.writestr(each, content)
        if extra:
            archive.writestr("x/c.0", extra)


def grid(shape: list[int], piece: list[int]) -> Forgery:
    """Metadata of another shape."""

    def forge(metadata: dict[str, Any]) -> None:
        metadata["shape"] = shape
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = piece

    return forge


def said(**facts: Any) -> Forgery:
    """Metadata that say other things."""
    return lambda metadata: metadata.update(facts)


FORGERIES: dict[str, tuple[Forgery, str]] = {
    "shape": (grid([10**13], [1]), "says that there are 10000000000000 pieces"),
    "pieces": (grid([10**13], [10**13]), "has pieces of 80000000000004 bytes"),
    "longest": (grid([10**400], [10**400]), "has pieces of 8"),
    "negative": (grid([-1], [1]), r"has shape \[-1\]"),
    "nothing": (grid([2], [0]), r"in pieces of \[0\]"),
    "zstd": (said(codecs=[{"name": "bytes"}, {"name": "zstd"}]), r"by \['bytes', 'zstd'\]"),
    "sharded": (said(codecs=[{"name": "sharding_indexed"}]), "by .*sharding"),
    "text": (said(data_type={"name": "fixed_length_utf32"}), "has data_type = "),
    "objects": (said(data_type="variable_length_bytes"), "says that its numbers are variable_length_bytes"),
    "fill": (said(fill_value="0x" + "f" * 10**5), "Invalid type: 0xf{80,299}[)]"),
    "type": (said(data_type="int32"), "has more than 12 bytes"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_cannot_be_unpacked_is_damage_of_its_chunk_alone(made: Store, name: str) -> None:
    """What it says is compared with what it holds, before room is made for it."""
    forge, words = FORGERIES[name]
    forged(made, KEYS[0], forge)
    with pytest.raises(DamagedChunkError, match=words):
        made.load("loops", KEYS[0])
    found = verify(made)
    assert found.checked == len(KEYS) and [each.key for each in found.damaged] == [KEYS[0]]


@pytest.mark.parametrize(
    ("header", "offset", "words"),
    [
        (b"PK\x01\x02", 16, "does not have the checksum"),
        (b"PK\x01\x02", 20, "its entries say that they take"),
        (b"PK\x01\x02", 24, "its entries say that they take"),
        (b"PK\x01\x02", 42, "is not where its directory says"),
        (b"PK\x03\x04", 30, "is not where its directory says"),
        (b"PK\x03\x04", 0, "is not where its directory says"),
        (b"PK\x03\x04", 28, "."),
    ],
)
def test_a_packed_file_whose_headers_lie_is_damage(store, header, offset, words):
    """The field at an offset of the first header of a kind: of the directory, or before the entry."""
    store.create()
    store.commit("loops", KEYS[0], {"total": np.arange(4.0)}, {"total": ("site",)}, {})
    place = store.location("loops", KEYS[0])
    content = bytearray(place.read_bytes())
    content[content.index(header) + offset + (3 if offset in (20, 24) else 0)] ^= 1
    place.unlink()
    place.write_bytes(content)
    with pytest.raises(DamagedChunkError, match=words):
        store.record("loops", KEYS[0])


def test_a_file_that_unpacks_to_much_more_is_damage(store: Store) -> None:
    store.create()
    for key in KEYS:
        store.commit("loops", key, {"total": np.arange(4.0)}, {"total": ("site",)}, {})
    forged(store, KEYS[0], said(), extra=bytes(RECORD_BYTES))
    with pytest.raises(DamagedChunkError, match="its entries say that they take"):
        store.record("loops", KEYS[0])
    place = store.location("loops", KEYS[1])
    whole = place.read_bytes()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(place, "a") as archive:
        archive.writestr(archive.namelist()[0], b"")
    for content, words in (
        (place.read_bytes(), "names a file twice"),
        (b"PK\5\6" + bytes(18), "has no record"),
        (whole + 10_001 * b"PK\1\2", "has more than 10000 entries"),
    ):
        place.write_bytes(content)
        with pytest.raises(DamagedChunkError, match=words):
            store.record("loops", KEYS[1])
    place.unlink()
    with place.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DamagedChunkError, match="has more than 134217728 bytes"):
        store.record("loops", KEYS[1])
    assert len(verify(store).damaged) == 2


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE])
def test_what_cannot_be_read_now_is_no_damage(made, monkeypatch, code):
    real = Path.open

    def failing(path: Path, *mode: Any, **how: Any) -> Any:
        if KEYS[0] in str(path):
            raise OSError(code, os.strerror(code))
        return real(path, *mode, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", failing)
        with pytest.raises(UnreadableChunkError, match="nothing is said about its content"):
            made.load("loops", KEYS[0])
        found = verify(made, remove=True)
        assert not found.damaged and len(found.unreadable) == 1
    assert made.keys("loops") == set(KEYS)
    assert not verify(made).unreadable


def test_only_the_one_driver_removes(made: Store) -> None:
    with driver_lock(made, "run-4"), pytest.raises(InputError, match="is driven by run run-4"):
        verify(made, remove=True)


def test_what_is_purged_is_lacking(made: Store) -> None:
    assert not made.gaps("loops", KEYS)
    gone = files_of(made.location("loops", KEYS[0]))[-1]
    if made.location("loops", KEYS[0]).is_dir():
        gone.unlink()
    else:
        gone.write_bytes(b"")
    assert made.gaps("loops", KEYS) == {KEYS[0]: True}
    grave = made.set_aside("loops", KEYS[0])
    assert grave and grave.exists() and made.set_aside("loops", KEYS[0]) is None
    assert made.commit("loops", KEYS[0], SMALL, DIMS, RECORD)
    np.testing.assert_array_equal(made.load("loops", KEYS[0])["current"], SMALL["current"])


def as_format_1(store: Store, stage: str, key: str) -> Path:
    """Rewrite a chunk's folder as the first version of the store wrote it."""
    old = store.path / stage / key
    shelf = store.location(stage, key)
    os.rename(shelf, old)
    content = json.loads((old / "zarr.json").read_text())
    record = content["attributes"]
    for name in ("digest", "key"):
        del record[name]
    for array in record["arrays"].values():
        del array["pieces"], array["metadata"]
    (old / "zarr.json").write_text(json.dumps(content))
    shelf.parent.rmdir()
    (store.path / "quarkline.json").write_text('{"format": 1}')
    return old


def test_a_store_of_format_1_is_read_in_place(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.store.store.PACKED_BYTES", -1)
        store.create()
        store.commit("loops", KEYS[0], SMALL, DIMS, RECORD)
    old = as_format_1(store, "loops", KEYS[0])
    again = Store(store.path)
    np.testing.assert_array_equal(again.load("loops", KEYS[0])["current"], SMALL["current"])
    assert again.gaps("loops", KEYS) == {KEYS[1]: False}
    assert "1 chunk of format 1: no key and digest" in str(verify(again))
    assert not again.commit("loops", KEYS[0], SMALL, DIMS, RECORD)
    again.create()
    assert json.loads((store.path / "quarkline.json").read_text()) == {"format": 2}
    assert again.commit("loops", KEYS[1], SMALL, DIMS, RECORD)
    assert again.location("loops", KEYS[1]).is_file() and again.keys("loops") == set(KEYS)
    (old / "current" / "c.0.0.0").unlink()
    assert again.gaps("loops", KEYS) == {KEYS[0]: True}
    assert not again.foreign()


def fields(name: str, configs: str) -> Workflow:
    w = Workflow(name)
    w.add(toys.field, place=Place(over={"config": list(configs)}))
    return w


def test_garbage_leaves_what_is_not_the_stores_and_names_whose_chunks_go(compute, store):
    compute(fields("one", "ab"))
    compute(fields("two", "bc"))
    mine = [store.path / "notes" / "deep" / "text", store.path / "field" / "a.milc"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    found = collect_garbage(store, [fields("one", "ab")])
    assert len(found.chunks) == 1 and found.others == ("two",)
    assert set(found.foreign) == {"notes", "field/a.milc"}
    assert all(path.read_text() == "precious" for path in mine)
    assert "belong to two" in str(found) and "not files of the store, left untouched" in str(found)
    assert not plan(fields("one", "ab"), store).missing


def chains() -> Workflow:
    """Chains that are other ones on a GPU, with what is measured on them."""
    w = Workflow("chains")
    chain = w.add(toys.chain, place=Place(over={"config": ["a", "b"]}))
    w.add(toys.loops, chain, place=Place(over={"noise": range(2)}), mass=0.5)
    return w


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_garbage_is_not_what_another_backend_made(store: Store, backend: str) -> None:
    """Nobody need say again where a chain was made; there is no GPU where it is collected."""
    store.create()
    planned = plan(chains(), store, backend=backend)
    for chunk in planned.missing:
        store.commit(chunk.node.stage.name, chunk.key, SMALL, DIMS, {**RECORD, "coordinates": {}})
    keep_plan(store, planned)
    assert not plan(chains(), store, backend=backend).missing
    found = collect_garbage(store, [chains()])
    assert (len(found.chunks), found.kept, found.losses) == (0, len(planned.missing), {})
    assert not plan(chains(), store, backend=backend).missing


def test_garbage_has_the_names_of_all_that_was_run(compute, store):
    """Every text of every file, rounds of one text together; those that lose nothing are not named."""

    def workflow(name: str, path: str, text: str, configs: str) -> Workflow:
        w = fields(name, configs)
        w.source = Source(text, f"/there/{path}", "/there")
        return w

    runs_of = (
        ("one", "a.yaml", "1", "ab"),
        ("one", "a.yaml", "2", "cd"),
        ("one", "b.yaml", "1", "de"),
        ("one", "b.yaml", "1", "f"),
        ("two", "b.yaml", "3", "a"),
        ("one.partial", "c.yaml", "4", "g"),
    )
    for run in runs_of:
        compute(workflow(*run))
    found = collect_garbage(store, [workflow("one", "a.yaml", "2", "acd")], dry_run=True)
    assert [past.day for past in past_plans(store)] == 5 * [date.today().isoformat()]
    losses = {Path(label.split()[0]).name: number for label, number in found.losses.items()}
    assert losses == {"a.yaml": 1, "b.yaml": 2, "c.yaml": 1} and len(found.chunks) == 4
    assert found.others == ()
    asked: list[Garbage] = []

    def refuse(garbage: Garbage) -> None:
        asked.append(garbage)
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        collect_garbage(store, [fields("three", "acd")], agree=refuse)
    assert asked[0].others == ("one",) and asked[0].damaged == () and len(store.keys("field")) == 7
    damaged = next((store.path / ".workflows").glob(".two-*.json"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    with pytest.raises(InputError, match="no"):
        collect_garbage(store, [fields("three", "acd")], agree=refuse)
    assert asked[1].damaged == (f".workflows/{damaged.name}",)
    assert f"whose chunks are not known: .workflows/{damaged.name}" in str(asked[1])
    damaged.write_bytes(whole)
    collect_garbage(store, [fields("three", "acd")])
    assert {Path(past.path).name for past in past_plans(store)} == {"a.yaml", "b.yaml"}
    assert not collect_garbage(store, [fields("three", "acd")], agree=refuse).chunks


def test_garbage_of_stores_of_earlier_versions_is_asked_for(compute, store, tmp_path):
    """They kept the last plan of a name only; merging brings what others remember."""
    compute(fields("one", "ab"))
    compute(fields("one", "c"))
    receive([store], Store(tmp_path / "merged"))
    for path in (store.path / ".workflows").glob(".*.json"):
        path.unlink()
    found = collect_garbage(store, [fields("two", "d")], dry_run=True)
    assert found.losses == {
        "one as run on an unknown day": 1,
        "runs that this store has no record of": 2,
    }
    found = collect_garbage(tmp_path / "merged", [fields("two", "d")], dry_run=True)
    assert found.losses == {f"one as run on {date.today()}": 3} and found.others == ("one",)


@pytest.mark.parametrize("depth", [2, 9])
def test_damage_that_is_found_one_after_the_other(compute, store, depth):
    """Each stage of a chain is damaged, and seen only when what is made of it is computed again."""
    w = fields("deep", "ab")
    node = w.nodes["field"]
    for number in range(depth):
        node = w.add(toys.fragile, node, place=Place(f"step{number}"))
    compute(w)
    chunks = plan(w, store).chunks
    store.remove(chunks[-1].node.stage.name, chunks[-1].key)
    for chunk in chunks[:-1]:
        place = store.location(chunk.node.stage.name, chunk.key)
        place.write_bytes(place.read_bytes()[:-17])
    outcome = compute(w)
    assert outcome.exit_status == 0 and not outcome.failures, outcome.table()
    assert not plan(w, store).missing
    found = {damage.key for damage in verify(store).damaged}
    assert found == {chunk.key for chunk in chunks if "a" in chunk.coordinates["config"]}


def test_old_logs_of_runs_are_dropped(store: Store) -> None:
    store.create()
    for k in range(RUNS_KEPT + 3):
        (store.path / ".runs" / f"2026-{k:03d}").mkdir()
        (store.path / ".runs" / f"2026-{k:03d}" / "events.jsonl").touch()
    drop_old_runs(store)
    assert len(runs(store)) == RUNS_KEPT and runs(store)[0] == "2026-003"


def test_a_lease_takes_the_place_of_locks_that_there_are_none(store, monkeypatch):
    store.create()
    for code in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):

        def none(handle: int, operation: int, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("fcntl.flock", none)
        with driver_lock(store, "first"), pytest.raises(InputError, match="is driven by run first"):
            driver_lock(store, "second").__enter__()


SHIM = """
#include <errno.h>
#include <stdlib.h>
int flock(int handle, int operation) {
    int code = atoi(getenv("FLOCK_ERRNO"));
    if (!code) return 0;                       /* granted to everybody: a lock that is local to a node */
    errno = code;
    return -1;
}
"""

HOLDER = """
import sys
from pipeline import InputError, Store
from pipeline.store.lock import driver_lock
try:
    with driver_lock(Store(sys.argv[1]), sys.argv[2]):
        print("held", flush=True)
        sys.stdin.readline()
except InputError as error:
    print(error, flush=True)
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that answers for `flock` in place of the file system."""
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "flock.c").write_text(SHIM)
    library = folder / "flock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "flock.c"], check=True)
    return library


def holder(store: Store, run: str, shim: Path, code: int) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "LD_PRELOAD": str(shim), "FLOCK_ERRNO": str(code)}
    command = [sys.executable, "-c", HOLDER, str(store.path), run]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_store_that_vanishes_while_a_folder_is_written_is_not_made_anew(store, monkeypatch):
    monkeypatch.setattr("pipeline.store.store.PACKED_BYTES", -1)
    store.create()
    write, begun = group._ExistingFolder._write, list[Path]()

    def vanishing(folder: group._ExistingFolder, path: Path, value: Any) -> None:
        begun.append(path)  # by several threads: files of one chunk are written side by side
        if len(begun) == 3:
            store.path.rename(store.path.with_name("away"))
        write(folder, path, value)

    monkeypatch.setattr(group._ExistingFolder, "_write", vanishing)
    with pytest.raises(StoreError, match="No such file or directory"):
        store.commit("loops", KEYS[0], SMALL, DIMS, RECORD)
    assert not store.path.exists()


@pytest.mark.parametrize("code", [errno.ENOSYS, 0])
def test_a_lease_keeps_a_second_driver_out_where_flock_does_not(store: Store, shim: Path, code: int) -> None:
    store.create()
    first = holder(store, "first", shim, code)
    assert first.stdout and first.stdout.readline() == "held\n"
    driver = current_driver(store)
    assert driver and driver.run == "first"
    second = holder(store, "second", shim, code)
    assert "is driven by run first" in second.communicate(timeout=60)[0]
    first.kill()  # a driver that died on this machine is noticed at once
    first.communicate()
    third = holder(store, "third", shim, code)
    assert third.communicate("\n", timeout=60)[0] == "held\n"
    assert current_driver(store) is None
    assert not list(store.path.glob(".lease*"))


def test_a_lease_of_another_machine_counts_until_it_is_silent(store, monkeypatch):
    monkeypatch.setattr(lease, "STALE", 0.6)
    monkeypatch.setattr(lease, "BEAT", 0.05)
    store.create()
    file = store.path / ".lease"
    file.write_text(json.dumps({"host": "elsewhere", "pid": 17, "run": "far", "boot": "x"}))
    began = time.monotonic()
    with driver_lock(store, "here"):
        assert time.monotonic() - began > 0.4
        time.sleep(0.15)
        driver = current_driver(store)
        assert driver and driver.run == "here"
    file.write_text(json.dumps({"host": "elsewhere", "pid": 17, "run": "far", "boot": "x"}))
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: os.utime(file))
        with pytest.raises(InputError, match=r"is driven by run far \(process 17 on elsewhere\)"):
            driver_lock(store, "here").__enter__()
    assert file.exists()


def test_a_small_chunk_takes_one_inode_and_at_most_twice_its_numbers_and_4_kb(store: Store) -> None:
    """Arrays and record as those of `current_loops` of four noise vectors on 4^4."""
    store.create()
    current = np.random.default_rng(7).standard_normal((4, 4, 4, 4)) + 0j
    arrays = {"current": current, "scalar": np.zeros((4, 4), complex)}
    dims = {"current": ("noise", "probe", "direction", "time"), "scalar": ("noise", "time")}
    parameters = {f"parameter_{k}": k / 7 for k in range(20)}
    record = {**RECORD, "parameters": parameters, "inputs": [list(KEYS)] * 2}
    store.commit("current_loops", KEYS[0], arrays, dims, record)
    place = store.location("current_loops", KEYS[0])
    assert place.is_file()
    assert place.stat().st_size <= 2 * sum(array.nbytes for array in arrays.values()) + 4096

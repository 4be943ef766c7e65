"""The store: durable commits, valid Zarr, clear errors, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import ZipStore

from pipeline import InputError, Store, verify
from pipeline.store import mark
from pipeline.store.errors import DamagedChunkError, StoreError, StoreFullError
from pipeline.store.group import PIECE_BYTES, array_digest
from pipeline.store.mark import FORMAT

KEY = "5e" * 32
ARRAYS = {
    "current": np.arange(24.0).reshape(2, 3, 4) * (1 + 2j),
    "count": np.array(7),
    "mask": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.float32),
}
DIMS: dict[str, tuple[str, ...]] = {
    "current": ("noise", "direction", "time"),
    "count": (),
    "mask": ("noise",),
    "nothing": ("kept", "time"),
}


@pytest.fixture
def made(store: Store) -> Store:
    store.create()
    return store


def drafts(store: Store) -> list[Path]:
    return list(store.temporary.iterdir())


def test_what_is_committed_is_read_back(made: Store) -> None:
    assert made.commit("loops", KEY, ARRAYS, DIMS, {"seconds": 1.5})
    assert made.has("loops", KEY)
    assert made.keys("loops") == {KEY}
    assert made.stages() == ["loops"]
    loaded = made.load("loops", KEY)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype
    record = made.record("loops", KEY)
    assert record["seconds"] == 1.5
    assert (record["stage"], record["key"]) == ("loops", KEY)
    current = record["arrays"]["current"]
    assert current["digest"] == array_digest(ARRAYS["current"])
    assert current["dims"] == ["noise", "direction", "time"]
    assert list(current["pieces"]) == ["c.0.0.0"]


@pytest.mark.parametrize("packed", [True, False])
def test_a_chunk_is_a_zarr_v3_group(made: Store, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.store.PACKED_BYTES", 1 << 20 if packed else 0)
    made.commit("loops", KEY, ARRAYS, DIMS, {"seconds": 1.5})
    place = made.location("loops", KEY)
    group = zarr.open_group(ZipStore(place, mode="r") if packed else place, mode="r")
    assert group.metadata.zarr_format == 3
    assert group["current"].metadata.dimension_names == DIMS["current"]
    np.testing.assert_array_equal(group["current"][...], ARRAYS["current"])


def test_large_arrays_are_cut_and_leftovers_swept(made: Store) -> None:
    large = np.zeros((5, PIECE_BYTES // 16), np.float64)
    made.commit("space", KEY, {"vectors": large}, {"vectors": ("vector", "site")}, {})
    assert made.open("space", KEY)["vectors"].chunks == (2, PIECE_BYTES // 16)

    made.commit("loops", KEY, ARRAYS, DIMS, {})
    made.remove("loops", KEY)
    assert not made.has("loops", KEY)
    (made.temporary / "orphan").mkdir()
    assert made.sweep() == 1
    assert drafts(made) == []


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks lie as large ones do."""
    monkeypatch.setattr("pipeline.store.store.PACKED_BYTES", -1)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was flushed so far."""
    found: list[Path] = []
    real = os.fsync

    def noting(handle: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", noting)
    return found


def test_new_folders_are_flushed_into_their_parents(tmp_path: Path, flushed: list[Path]) -> None:
    store = Store(tmp_path / "scratch" / "store")
    store.create()
    assert {tmp_path, tmp_path / "scratch", store.path} <= set(flushed)
    (store.path / "loops" / KEY[:3]).mkdir(
        parents=True
    )  # as another process would, that has not flushed it yet
    flushed.clear()
    store.commit("loops", KEY, ARRAYS, DIMS, {})
    assert flushed.count(store.path) == 1
    flushed.clear()
    store.commit("loops", KEY[:3] + "a" * 61, ARRAYS, DIMS, {})
    assert store.path not in flushed
    store.create()
    assert tmp_path not in flushed


@pytest.mark.usefixtures("folders")
def test_every_file_and_folder_is_flushed_before_it_is_published(made: Store, flushed: list[Path]) -> None:
    made.commit("loops", KEY, {"count": ARRAYS["current"]}, {"count": DIMS["current"]}, {})
    draft = next(
        path for path in flushed if path.name == "zarr.json" and path.parent.parent == made.temporary
    )
    inside = [str(path.relative_to(draft.parent)) for path in flushed if path.is_relative_to(draft.parent)]
    assert sorted(inside[:2]) == ["count/c.0.0.0", "count/zarr.json"]
    assert inside[2] == "zarr.json"
    assert sorted(inside[3:]) == [".", "count"]
    assert flushed[-1] == made.path / "loops" / KEY[:3]


def test_a_small_chunk_is_one_file_that_is_flushed_before_it_has_its_name(made, flushed):
    made.commit("loops", KEY, ARRAYS, DIMS, {})
    place = made.path / "loops" / "5e5" / f"{KEY}.zarr.zip"
    assert made.location("loops", KEY) == place and place.is_file() and place.stat().st_nlink == 1
    draft = next(path for path in flushed if path.parent == made.temporary)
    assert flushed.index(draft) < flushed.index(place.parent) == len(flushed) - 1


def test_the_first_of_many_writers_wins_and_the_others_leave_nothing(made: Store) -> None:
    def write(number: int) -> bool:
        return made.commit(
            "loops", KEY, {"x": np.full(1000, float(number))}, {"x": ("site",)}, {"by": number}
        )

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert made.record("loops", KEY)["by"] == won.index(True)
    assert set(made.load("loops", KEY)["x"]) == {float(won.index(True))}
    assert drafts(made) == []


RACER = """
import sys, numpy as np
from pipeline import Store
store, number = Store(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
for k in range(20):
    won = store.commit("race", f"{k:064x}", {"x": np.full(9, number)}, {"x": ("site",)}, {"by": number})
    print(int(won))
"""


def test_processes_that_race_for_the_same_chunks_commit_each_once(made: Store) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(made.path), str(k)], env=environment, **pipes)
        for k in range(3)
    ]
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outputs = [list(map(int, racer.communicate(timeout=60)[0].split())) for racer in racers]
    assert [sum(wins) for wins in zip(*outputs, strict=True)] == [1] * 20
    for k in range(20):
        key = f"{k:064x}"
        winner = made.record("race", key)["by"]
        assert outputs[winner][k] == 1
        assert set(made.load("race", key)["x"]) == {winner}
    assert drafts(made) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(made, monkeypatch, code):
    def full(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StoreFullError, match=r"while writing loops/5e5e.* make room and run the same command"
    ):
        made.commit("loops", KEY, ARRAYS, DIMS, {})
    assert not made.has("loops", KEY)
    assert drafts(made) == []


def test_a_file_that_cannot_grow_in_mid_write_is_cleaned_up(made: Store) -> None:
    """The limit on file sizes stops a real write halfway, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StoreFullError, match="File too large"):
            made.commit("loops", KEY, {"x": np.zeros(10_000)}, {"x": ("site",)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not made.has("loops", KEY)
    assert drafts(made) == []
    assert made.commit("loops", KEY, {"x": np.zeros(10_000)}, {"x": ("site",)}, {})


def test_a_store_that_cannot_be_written_says_so(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pipeline.store.group.write_packed", read_only)
    with pytest.raises(StoreError, match=r"cannot write loops/5e5e.*Read-only file system"):
        made.commit("loops", KEY, ARRAYS, DIMS, {})


OTHER = rf"format {FORMAT + 1}, this version .* {FORMAT} .*: use the version that"
DAMAGED = r"quarkline\.json is damaged"
ODD = r"has format (True|'2'|2\.0|\[2\]|inf), this version"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({"format": FORMAT + 1}), OTHER),
        *((f'{{"format": {odd}}}', ODD) for odd in ("true", '"2"', "2.0", "[2]", "1e999")),
        *((text, DAMAGED) for text in ("", "[]", "{}", "format 1", "[" * 10**5)),
    ],
)
def test_a_mark_of_another_format_or_damaged_is_refused(made: Store, text: str, message: str) -> None:
    (made.path / "quarkline.json").write_text(text)
    with pytest.raises(InputError, match=message):
        Store(made.path)


def test_a_store_that_another_process_makes_just_now_is_no_foreign_folder(store, monkeypatch):
    """Its mark is not there at the first look, and all that a driver makes is, a moment later."""
    (store.path / ".drivers").mkdir(parents=True)
    begun = mark._is_begun

    def meanwhile(name: str) -> bool:
        (store.path / mark.MARK).write_text(mark.TEXT)
        return begun(name)

    monkeypatch.setattr(mark, "_is_begun", meanwhile)
    assert mark.format_of(store.path) == mark.FORMAT


def test_what_is_no_store(tmp_path: Path, store: Store) -> None:
    """A folder of somebody's, a file; one that is not there yet, or whose making was ended, is made anew."""
    assert not store.exists() and store.keys("loops") == set() and store.stages() == []
    (tmp_path / "thesis.tex").write_text("precious")
    for path, message in ((tmp_path, "not a quarkline store"), (tmp_path / "thesis.tex", "Not a directory")):
        with pytest.raises(InputError, match=message):
            Store(path)

    for name in (".tmp", ".runs"):
        (store.path / name).mkdir(parents=True)
    (store.path / ".quarkline.json.4711-5e1f").write_text('{"for')
    again = Store(store.path)
    assert not again.exists()
    again.create()
    assert Store(store.path).exists()


@pytest.mark.usefixtures("folders")
def test_a_missing_piece_does_not_read_as_zeros(made: Store) -> None:
    made.commit("loops", KEY, ARRAYS, DIMS, {})
    (made.location("loops", KEY) / "mask" / "c.0").unlink()
    with pytest.raises(InputError, match=r"piece mask/c\.0 is gone"):
        made.load("loops", KEY)


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize("text", ['{"attributes": {}}', '{"attributes": {"arrays": {"mask": null}}}', "[]"])
def test_a_record_without_arrays_is_damage(made: Store, text: str) -> None:
    made.commit("loops", KEY, ARRAYS, DIMS, {})
    (made.location("loops", KEY) / "zarr.json").write_text(text)
    for read in (made.record, made.load):
        with pytest.raises(DamagedChunkError, match=r"is damaged \(its record does not give its arrays"):
            read("loops", KEY)
    (found,) = verify(made).damaged
    assert found.problem == "its record does not give its arrays and their digests"

"""The table of measured choices: many writers, damage, other devices, where it lies. No device is needed."""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cupy", reason="the table lives with the CUDA kernels")

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.tuning.table import (
    DeviceKind,
    Entry,
    cache_folder,
    merge_into_table,
    read_table,
    table_key,
    table_path,
)

H200 = DeviceKind("NVIDIA H200", "9.0")
ENTRY = Entry({"groups": 16, "blocks": 528}, 1e-5, 1.25e-5, "2026-11-21T05:00:00+00:00", "13000", "14.2.0")


def test_merging_keeps_the_union_and_the_later_measurement(tmp_path: Path) -> None:
    file = tmp_path / "tuning" / "t.json"
    later = replace(ENTRY, shape={"groups": 8, "blocks": 528}, measured="2026-11-22T05:00:00+00:00")
    merge_into_table(file, H200, {"a": ENTRY, "b": later})
    assert merge_into_table(file, H200, {"b": ENTRY, "c": ENTRY}) == {"a": ENTRY, "b": later, "c": ENTRY}
    assert read_table(file) == {"a": ENTRY, "b": later, "c": ENTRY}
    assert {path.name for path in file.parent.iterdir()} == {"t.json", "t.lock"}


def _merge_many(file: Path, writer: int, rounds: int) -> None:
    for number in range(rounds):
        merge_into_table(file, H200, {f"{writer} {number}": ENTRY})
        table = read_table(file)  # never half a file, and never without what is one's own
        assert all(f"{writer} {n}" in table for n in range(number + 1))


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file, writers, rounds = tmp_path / "t.json", 8, 12
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=_merge_many, args=(file, w, rounds)) for w in range(writers)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for process in started:
            process.start()
        for process in started:
            process.join(60)
    assert [process.exitcode for process in started] == [0] * writers
    assert set(read_table(file)) == {f"{w} {n}" for w in range(writers) for n in range(rounds)}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "choices": 3}', "\x00", "[" * 100_000]
)
def test_a_damaged_file_is_reported_and_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(text)
    with pytest.warns(RuntimeWarning, match=rf"{file} is not used as it is .*quarkline tune.* mends it"):
        assert read_table(file) == {}
    with pytest.warns(RuntimeWarning):
        merge_into_table(file, H200, {"a": ENTRY})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(file) == {"a": ENTRY}


@pytest.mark.parametrize(
    ("name", "value"),
    [("shape", "wide"), ("seconds", -1.0), ("seconds", "fast"), ("model_seconds", None), ("measured", 5)],
)
def test_damaged_entries_are_left_out(tmp_path: Path, name: str, value: object) -> None:
    file = tmp_path / "t.json"
    merge_into_table(file, H200, {"a": ENTRY, "b": ENTRY})
    content = json.loads(file.read_text())
    content["choices"]["b"][name] = value
    file.write_text(json.dumps(content))
    with pytest.warns(RuntimeWarning, match="1 of its 2 entries make no sense"):
        assert read_table(file) == {"a": ENTRY}


def test_a_file_of_another_format_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('{"format": 2, "choices": {"a": {"new": 1}}}')
    assert read_table(file) == {}


def test_a_table_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"t\.json cannot be written .*set QUARKLINE_CACHE"):
        merge_into_table(tmp_path / "file" / "t.json", H200, {"a": ENTRY})


def test_each_kind_of_device_has_its_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path))
    devices = (H200, DeviceKind("NVIDIA H200", "9.1"), DeviceKind("NVIDIA A100/80GB", "8.0"))
    names = [table_path(device).relative_to(tmp_path / "tuning").name for device in devices]
    assert names == ["NVIDIA-H200-sm_90.json", "NVIDIA-H200-sm_91.json", "NVIDIA-A100-80GB-sm_80.json"]


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUARKLINE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for shared in ("", "relative/paths/do/not/count"):
        monkeypatch.setenv("XDG_CACHE_HOME", shared)
        assert cache_folder() == tmp_path / "home" / ".cache" / "quarkline"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "quarkline"
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_keys_hold_the_problem_and_the_source() -> None:
    assert table_key("gram nx=8", "a" * 64) == "gram nx=8 source=aaaaaaaaaaaaaaaa"
    assert os.path.sep not in table_path(H200).name

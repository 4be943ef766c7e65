"""Reading results: labelled arrays, HDF5, garbage, status, the resident cache."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import toy_stages as toys
from executions import Executions

from pipeline import (
    InputError,
    Outcome,
    Place,
    Store,
    Workflow,
    collect_garbage,
    export_hdf5,
    open_result,
    plan,
    status,
)
from pipeline.reading.result import load_result
from pipeline.store.lock import driver_lock
from pipeline.store.packed import unpacked
from pipeline.store.stored_array import StoredArray
from pipeline.worker.resident import ResidentCache, nbytes, process_cache

Compute = Callable[[Workflow], Outcome]


def workflow(name: str = "demo", configs: str = "ab", mass: float = 0.5, about: Any = None) -> Workflow:
    w = Workflow(name, about or {})
    field = w.add(toys.field, place=Place(over={"config": list(configs)}))
    loops = w.add(toys.loops, field, place=Place(over={"noise": range(4)}, chunk={"noise": 2}), mass=mass)
    w.add(toys.mean, loops)
    return w


def test_a_result_is_a_labelled_array_of_which_nothing_is_read_before_it_is_used(compute, store, monkeypatch):
    compute(workflow())
    read: list[StoredArray] = []
    real = StoredArray.__getitem__
    monkeypatch.setattr(StoredArray, "__getitem__", lambda self, part: read.append(self) or real(self, part))
    data = open_result(store.path, "loops")
    assert read == []
    data.current.sel(config="a", noise=[0, 1]).load()
    assert [array.name for array in read] == ["current"]
    assert data.current.dims == ("config", "noise", "time") and data.total.dims == ("config", "noise")
    assert list(data.config) == ["a", "b"] and list(data.noise) == [0, 1, 2, 3]
    assert data.attrs["node"] == "loops" and data.attrs["parameters"] == {"mass": 0.5}
    assert load_result(store, "loops", "demo").identical(data.load())
    fields = open_result(store, "field")
    assert fields["values"].dims == ("config", "site")
    np.testing.assert_array_equal(fields["values"].sel(config="b"), np.arange(6) + ord("b"))


def test_labels_of_a_stage_are_coordinates(compute: Compute, store: Store, tmp_path: Path) -> None:
    """An output that does not fit them is refused."""
    w, field = toys.fields("a", "labelled")
    w.add(toys.parts, field)
    w.add(toys.parts, field, place=Place("three"), number=3)
    (failure,) = compute(w).failures
    assert "output 'parts' of stage parts must be a numeric array with (site=?, part=2)" in failure.error
    data = open_result(store, "parts", workflow="labelled")
    assert list(data.part) == ["re", "im"]
    assert not data.parts.sel(part="re").any() and data.parts.sel(part="im").all()
    with h5py.File(export_hdf5(store, "parts", tmp_path / "parts.h5")) as file:
        assert [label.decode() for label in file["part"]] == ["re", "im"]


def test_an_incomplete_result_is_refused_or_read_in_part(compute: Compute, store: Store) -> None:
    w = workflow()
    compute(w)
    missing = next(
        c for c in plan(w, store).chunks if c.node.name == "loops" and c.coordinates["noise"] == (2, 3)
    )
    store.remove("loops", missing.key)
    with pytest.raises(InputError, match=r"result 'loops' has 3 of 4 chunks.*partial=True"):
        open_result(store, "loops")
    data = open_result(store, "loops", partial=True)
    assert np.isnan(data.total.sel(config="a", noise=2))
    assert not np.isnan(data.total.sel(config="b", noise=2))


def test_unknown_and_ambiguous_names_are_refused(compute: Compute, store: Store, tmp_path: Path) -> None:
    compute(workflow("one"))
    with pytest.raises(InputError, match="no result named 'loop': did you mean 'loops'"):
        open_result(store, "loop")
    compute(workflow("two", mass=0.25))
    with pytest.raises(
        InputError, match="'loops' may be loops of workflow one, loops of workflow two: say which"
    ):
        open_result(store, "loops")
    assert open_result(store, "loops", workflow="two").attrs["parameters"] == {"mass": 0.25}
    with pytest.raises(InputError, match="there is no store at"):
        open_result(tmp_path / "nowhere", "loops")


def test_a_result_may_be_called_by_its_stage(compute: Compute, store: Store) -> None:
    w = Workflow("demo")
    field = w.add(toys.field, place=Place(name="gauge", over={"config": ["a"]}))
    compute(w)
    assert open_result(store, "field").attrs["node"] == "gauge"
    w.add(toys.field, place=Place(name="other", over={"config": ["a"]}), scale=2.0)
    compute(w)
    with pytest.raises(InputError, match="gauge of workflow demo, other of workflow demo: say which"):
        open_result(store, "field")
    assert open_result(store, field).attrs["node"] == "gauge"


def test_results_say_what_the_workflow_says_of_them(compute: Compute, store: Store, tmp_path: Path) -> None:
    """Nested values as values, and in HDF5 as JSON, however long; none of them is in a key."""
    labels = [f"configuration {number:060d}" for number in range(2000)]
    w, plain = (workflow(about=about) for about in ({"labels": labels, "factors": {"Z": "squared"}}, {}))
    compute(plain)
    assert not plan(w, store).missing
    compute(w)
    data = open_result(store, "loops")
    assert data.attrs["labels"] == labels and data.attrs["factors"] == {"Z": "squared"}
    assert data.current.attrs["long_name"] == "current"
    assert list(data.time.values) == list(range(data.sizes["time"]))
    with h5py.File(export_hdf5(store, "loops", tmp_path / "loops.h5")) as file:
        assert list(file.attrs["labels"]) == labels and json.loads(file.attrs["factors"]) == {"Z": "squared"}
        assert [file["current"].dims[k][0].name for k in range(3)] == ["/config", "/noise", "/time"]


def test_export_to_hdf5(compute: Compute, store: Store, tmp_path: Path) -> None:
    compute(workflow())
    path = export_hdf5(store, "loops", tmp_path / "loops.h5")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["current"][...], open_result(store, "loops").current)
        assert list(file["current"].attrs["dims"]) == ["config", "noise", "time"]
        assert [label.decode() for label in file["config"]] == ["a", "b"]
        assert file.attrs["stage"] == "loops"
    assert export_hdf5(store, "loops", tmp_path / "new" / "folder" / "loops.h5").exists()
    with pytest.raises(InputError, match="cannot write"):
        export_hdf5(store, "loops", path / "loops.h5")
    assert [item.name for item in tmp_path.glob("*.h5")] == ["loops.h5"]


def test_export_of_a_damaged_chunk_is_one_message(compute: Compute, store: Store, tmp_path: Path) -> None:
    """Of a chunk with an empty piece, then of one whose record lacks its array."""
    compute(workflow())
    (key,) = store.keys("mean")
    place = store.location("mean", key)
    files = unpacked(place.read_bytes())
    content = json.loads(files["zarr.json"])
    del content["attributes"]["arrays"]["mean"]
    for damage in ({"mean/c.0": b""}, {"zarr.json": json.dumps(content).encode()}):
        with zipfile.ZipFile(place, "w") as archive:
            for name, part in {**files, **damage}.items():
                archive.writestr(name, part)
        with pytest.raises(InputError, match=r"chunk mean/\w+ of store .* is damaged"):
            export_hdf5(store, "mean", tmp_path / "mean.h5")
        assert list(tmp_path.glob("*.h5*")) == []


def test_garbage_is_what_no_workflow_reaches(compute: Compute, executed: Executions, store: Store) -> None:
    compute(workflow("one", "ab"))
    compute(workflow("two", "ab", mass=0.25))
    (store.temporary / "orphan").mkdir()
    found = collect_garbage(store, [workflow("one")], dry_run=True)
    assert [stage for stage, _ in found.chunks] == ["loops"] * 4 + ["mean"]
    assert len(store.keys("loops")) == 8
    assert "5 chunks" in str(found)
    collect_garbage(store, [workflow("one")])
    assert len(store.keys("loops")) == 4
    assert not list(store.temporary.iterdir())
    executed.new()
    compute(workflow("one"))
    assert executed.new() == {}
    assert str(collect_garbage(store, [workflow("one")])) == "no chunk removed, 7 kept"


def test_garbage_is_not_collected_blindly(compute: Compute, store: Store) -> None:
    with pytest.raises(InputError, match="needs the workflows"):
        collect_garbage(store, [])
    with pytest.raises(InputError, match="there is no store"):
        collect_garbage(store, [workflow()])
    compute(workflow())
    with driver_lock(store, "run-1"), pytest.raises(InputError, match="is driven by run run-1"):
        collect_garbage(store, [workflow()])


def test_status(compute: Compute, store: Store) -> None:
    with pytest.raises(InputError, match="there is no store"):
        status(store)
    compute(workflow())
    found = status(store)
    expected = [("field", 2, 2), ("loops", 4, 4), ("mean", 1, 1)]
    assert [(n.node, n.stored, n.chunks) for n in found.nodes] == expected
    assert found.driver is None
    assert found.last_run
    assert found.last_run.counts == {"done": 7}
    assert "last run" in str(found)
    with driver_lock(store, "run-7"):
        assert "driven by run run-7" in str(status(store))
    (place,) = (store.path / ".workflows").glob("[!.]*.json")
    for length in (10, 1 << 40):  # cut off; of no size that one is
        os.truncate(place, length)
        assert f"{place} is damaged, so the state of its workflow is not shown" in str(status(store))
    compute(workflow())
    assert status(store).nodes == found.nodes


def test_new_names_for_old_chunks_are_kept_without_a_run(compute: Compute, store: Store) -> None:
    compute(workflow("demo", "ab"))
    compute(workflow("demo", "a"))
    assert list(open_result(store, "loops").config) == ["a"]
    assert compute(workflow("demo", "ab")).exit_status == 0
    assert list(open_result(store, "loops").config) == ["a", "b"]


def test_the_resident_cache_fits_the_memory_of_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a result that grows in use is measured anew."""
    monkeypatch.setattr("pipeline.worker.resident._caches", {})
    monkeypatch.setattr("pipeline.worker.resident.MEMORY_LIMIT", 4_000)
    assert process_cache(1 << 40, "cpu").limit == 1_600
    assert process_cache(1_000, "cpu").limit == 1_000
    cache = ResidentCache(200)
    growing = {"links": np.zeros(10)}
    cache.get("operator", lambda: growing)
    cache.get("other", lambda: np.zeros(5))
    for more, used in ((12, 176), (20, 0)):
        growing["packed"] = np.zeros(more)
        assert cache.get("operator", lambda: 0) is growing
        assert cache.used == used
    assert cache.declines(growing)


def test_the_resident_cache_is_bounded_in_bytes() -> None:
    """Each array counts once."""
    array = np.zeros(10)
    assert nbytes((array, {"again": array}, [np.zeros(5)], "text", 3)) == 120
    assert nbytes(toys.Setup(array)) == 80
    assert nbytes({"kernels": np, "kind": np.ndarray, "array": array}) == 80

    array = np.zeros(10)
    assert nbytes((array, {"again": array}, [np.zeros(5)], "text", 3)) == 120
    assert nbytes(toys.Setup(array)) == 80
    assert nbytes({"kernels": np, "kind": np.ndarray, "array": array}) == 80

    cache = ResidentCache(limit=100)
    made: list[str] = []

    def get(key: str, size: int) -> object:
        def make() -> np.ndarray:
            made.append(key)
            return np.zeros(size, np.uint8)

        return cache.get(key, make)

    first = get("a", 40)
    get("b", 40)
    assert get("a", 40) is first
    get("c", 40)
    assert cache.used == 80
    get("a", 40)
    get("b", 40)
    get("huge", 101)
    get("huge", 101)
    assert made == ["a", "b", "c", "b", "huge", "huge"]
    assert cache.used == 80

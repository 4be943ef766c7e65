"""Keys: what enters them, and that they never change unnoticed."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_stages as toys

from pipeline import At, InputError, Keyed, Place, Store, Workflow, plan, stage
from pipeline.planning.key import canonical
from pipeline.store import files
from pipeline.store.files import file_versions
from pipeline.store.record import canonical_json

FIELD_TEXT = (
    '{"coordinates":{"config":["conf.1"]},"files":{},"inputs":[],"parameters":{"path":null,"scale":1.0},'
    '"scheme":1,"stage":"field","version":"1"}'
)
GOLDEN = {
    "field": "2972a34ca5cfd937a66cf61381e055f915fe94afc5711cc5e8c8b2156cd44fd2",
    "loops": "29c70c852b01eae68ead857b0c5b478e1479c3eb9a12cef08219a1d4d8b599a0",
    "bulk": "e484b04cfac3950ac3c03497fd447983f0da83c9ee06a1606eb84449635b4b9a",
    "mean": "b467d49da740962c8f01644dc041f8e6afbb649fa18e28ee26d652ab46c7e4ab",
}


def keys(**changes: object) -> dict[str, str]:
    """Keys of the first chunk of each node of one workflow."""
    given = {"name": "w", "mass": 0.125, "scale": 1.0, "chunk": 2, "node": "loops", "backend": "cpu"}
    given |= changes
    w = Workflow(str(given["name"]))
    field = w.add(toys.field, place=Place(over={"config": ["conf.1"]}), scale=given["scale"])
    sizes = {"noise": given["chunk"]}
    place = Place(name=given["node"], over={"noise": range(4)}, chunk=sizes)
    loops = w.add(toys.loops, field, place=place, mass=given["mass"])
    w.add(toys.bulk, field, place=Place(over={"noise": range(4)}, chunk=sizes))
    w.add(toys.mean, loops)
    found = {}
    for chunk in plan(w, Store("/nowhere/store"), backend=str(given["backend"])).everything:
        found.setdefault(chunk.node.stage.name, chunk.key)
    return found


def test_golden_keys_and_what_alters_them() -> None:
    """A difference from the golden ones makes every store in the world start anew: raise `SCHEME`."""
    assert keys() == GOLDEN
    assert sha256(FIELD_TEXT.encode()).hexdigest() == GOLDEN["field"]

    assert keys(name="other", node="other", backend="cuda") == keys()

    before, after = keys(), keys(mass=0.25)
    assert {name for name in before if before[name] != after[name]} == {"loops", "mean"}

    assert keys(mass=1) == keys(mass=1.0)

    w = Workflow("w")
    w.add(toys.chain, place=Place(over={"config": ["a"]}))
    cpu, cuda = (plan(w, Store("/nowhere/store"), backend=name).chunks[0].key for name in ("cpu", "cuda"))
    assert cpu != cuda


def test_labels_are_in_no_key() -> None:
    def key(function: Callable[..., Any], **options: Any) -> str:
        w = Workflow("w")
        w.add(stage(version="1", over=("config",), **options)(function), place=Place(over={"config": ["a"]}))
        return plan(w, Store("/nowhere/store")).chunks[0].key

    def field(*, at: At) -> toys.Field:
        raise AssertionError("is only planned")

    assert key(field, labels={"site": range(6)}) == key(field)


def test_a_later_parameter_is_in_the_key_where_it_is_not_its_default() -> None:
    def field(*, at: At) -> toys.Field:
        raise AssertionError("is only planned")

    def wider(*, at: At, names: tuple[str, ...] = ("a", "b")) -> toys.Field:
        raise AssertionError("is only planned")

    def key(function: Callable[..., Any], keyed: Keyed, **options: Any) -> str:
        w, declare = Workflow("w"), stage(version="1", over=("config",), keyed=keyed)
        w.add(declare(function), place=Place(over={"config": ["a"]}), **options)
        return plan(w, Store("/nowhere/store")).chunks[0].key

    before, later = key(field, Keyed("s")), Keyed("s", later=("names",))
    assert key(wider, later) == key(wider, later, names=["a", "b"]) == before
    assert len({before, key(wider, later, names=("a",)), key(wider, Keyed("s"))}) == 3


def test_chunk_size_is_in_the_key_of_stages_that_say_so() -> None:
    """The last chunk holds the same coordinate, whatever the chunk size."""

    def last(function: object, size: int) -> str:
        w, field = toys.fields()
        parameters = {"mass": 1.0} if function is toys.loops else {}
        node = w.add(function, field, place=Place(over={"noise": [6]}, chunk={"noise": size}), **parameters)
        return next(c.key for c in plan(w, Store("/nowhere/store")).everything if c.node is node)

    assert last(toys.loops, 2) != last(toys.loops, 3)
    assert last(toys.bulk, 2) == last(toys.bulk, 3)


def test_extents_are_in_no_mapped_key_and_coordinates_in_any_order_are_the_same() -> None:
    def all_keys(configs: list[str]) -> dict[str, str]:
        w, field = toys.fields(configs)
        w.add(toys.config_mean, w.add(toys.loops, field, place=Place(over={"noise": [0, 1]}), mass=1.0))
        chunks = plan(w, Store("/nowhere/store")).chunks
        return {f"{chunk.node.name} {chunk.coordinates}": chunk.key for chunk in chunks}

    few, many = all_keys(["a", "b"]), all_keys(["c", "b", "a"])
    assert few.items() <= many.items()


class Kind(enum.Enum):
    Z2 = "z2"


@dataclasses.dataclass(frozen=True)
class Solver:
    tolerance: float
    inner: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.1, "0.1"),
        (1e-8, "1e-08"),
        (np.float64(0.25), "0.25"),
        (np.int32(7), "7"),
        ((1, [2.5, "x"]), '[1,[2.5,"x"]]'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (1 + 2j, '{"complex":[1.0,2.0]}'),
        (Kind.Z2, '"z2"'),
        (Solver(1e-3, (1, 2)), '{"inner":[1,2],"tolerance":0.001,"type":"Solver"}'),
    ],
)
def test_canonical_json(value: object, text: str) -> None:
    assert canonical_json(canonical(value, "node.name")).decode() == text
    json.loads(text)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), {1, 2}, {1: 2}, Path("x"), np.zeros(3)]
)
def test_values_without_unambiguous_text_are_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"parameter node\.name"):
        canonical(value, "node.name")


def test_digests_are_cached_by_identity_and_survive_a_torn_line(tmp_path, monkeypatch):
    cache, path = tmp_path / "cache", tmp_path / "field"
    path.write_text("links")
    os.utime(path, (1e9, 1e9))
    first = file_versions([path], cache)[path]
    with open(cache, "a") as file:
        file.write('{"torn')
    monkeypatch.setattr("pipeline.store.files._digest", lambda path: "not asked for")
    assert file_versions([path], cache)[path] == first
    os.utime(path, (1.1e9, 1.1e9))
    assert file_versions([path], cache)[path].digest == "not asked for"


def test_a_cache_of_digests_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan needs stays, however much; it is written anew only where that is less than half."""
    monkeypatch.setattr(files, "CACHE_BYTES", 200)
    cache, paths = tmp_path / "cache", [tmp_path / f"field{n}" for n in range(4)]
    for path in paths:
        path.write_text(path.name)
        os.utime(path, (1e9, 1e9))
    first = file_versions(paths, cache)
    assert cache.stat().st_size > 400
    inode = cache.stat().st_ino
    assert file_versions(paths, cache) == first and cache.stat().st_ino == inode
    with open(cache, "a") as file:
        file.write("foreign " * 200)
    for asked in (paths, paths[:2], paths[:1]):
        monkeypatch.setattr(files, "_digest", lambda path: "not asked for")
        assert file_versions(asked, cache) == {path: first[path] for path in asked}
        assert cache.stat().st_size < 150 * len(asked) + 150
    assert file_versions(paths[3:], cache)[paths[3]].digest == "not asked for"


def test_a_file_that_changes_while_its_digest_is_taken_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "field"
    path.write_text("links")
    file_versions([path], tmp_path / "cache")[path]
    assert not (tmp_path / "cache").exists()

    w = Workflow("w")
    w.add(toys.field, place=Place(over={"config": ["a"]}, files={"path": {"a": tmp_path / "absent.ildg"}}))
    with pytest.raises(InputError, match=r"absent\.ildg: No such file"):
        plan(w, Store(tmp_path / "store"))

    path = tmp_path / "field"
    path.write_text("links")
    os.utime(path, (1e9, 1e9))

    def replaced_meanwhile(path: Path) -> str:
        path.write_text("other links")
        return "of a mixture"

    monkeypatch.setattr("pipeline.store.files._digest", replaced_meanwhile)
    with pytest.raises(InputError, match="changed while it was read"):
        file_versions([path], tmp_path / "cache")[path]
    assert not (tmp_path / "cache").exists()

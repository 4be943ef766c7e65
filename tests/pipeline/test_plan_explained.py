"""What a plan says: the table word for word, and each reason."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import toy_stages as toys

from pipeline import Outcome, Place, Store, Workflow, explain, open_result, plan, stage
from pipeline.declare.coordinates import At
from pipeline.planning.manifest import Manifest
from pipeline.planning.workflow import Source

Compute = Callable[[Workflow], Outcome]


def workflow(
    configs: Iterable[str] = "ab", noise: int = 4, mass: float = 0.5, chunk: int = 2, shift: float = 0.0
) -> Workflow:
    w = Workflow("demo")
    costing = toys.Costing(toys.field, memory=40_000_000, stored=1_500_000)
    field = w.add(costing, place=Place(over={"config": list(configs)}))
    place = Place(name="loops_light", over={"noise": range(noise)}, chunk={"noise": chunk})
    loops = w.add(toys.loops, field, place=place, mass=mass)
    w.add(toys.first, w.add(toys.bulk, field, place=Place(over={"noise": range(2)}), shift=shift))
    w.add(toys.mean, loops)
    return w


def reasons(w: Workflow, store: Store) -> dict[str, set[str]]:
    """Reasons per node of the missing chunks."""
    planned = plan(w, store)
    found: dict[str, set[str]] = {}
    for chunk in planned.missing:
        found.setdefault(chunk.node.name, set()).add(str(planned.reasons[chunk.key]))
    return found


NEW = """\
workflow demo: 11 chunks, 0 in the store, 11 to compute
  node         stage  chunks  stored  to compute  why
  field        field       2       0           2  new
  loops_light  loops       4       0           4  new
  first        first       4       0           4  new
  mean         mean        1       0           1  new
projected: 38.15 MiB per task, 2.86 MiB to store, time unknown"""

EXTENDED = """\
workflow demo: 21 chunks, 10 in the store, 11 to compute
  node         stage  chunks  stored  to compute  why
  field        field       4       2           2  extended: config=c,d
  loops_light  loops       8       4           4  extended: config=c,d
  first        first       8       4           4  extended: config=c,d
  mean         mean        1       0           1  upstream extended: loops_light
projected: 38.15 MiB per task, 2.86 MiB to store, about"""

CHANGED = """\
workflow demo: 11 chunks, 6 in the store, 5 to compute
  node         stage  chunks  stored  to compute  why
  field        field       2       2           0
  loops_light  loops       4       0           4  changed parameter: mass 0.5 -> 0.25
  first        first       4       4           0
  mean         mean        1       0           1  upstream changed: loops_light
projected: unknown size per task, unknown size to store, about"""


def test_the_text_of_a_plan_and_its_reasons(store: Store, compute: Compute) -> None:
    assert explain(plan(workflow(), store)) == NEW
    on_gpus = explain(plan(workflow(), store, backend="cuda"))
    assert on_gpus == NEW.replace("MiB per task", "MiB per task without a GPU")
    assert not store.path.exists()  # a plan changes nothing
    compute(workflow())
    assert explain(plan(workflow("abcd"), store)).startswith(EXTENDED)
    assert explain(plan(workflow(mass=0.25), store)).startswith(CHANGED)
    assert explain(plan(workflow(), store)).endswith("mean         mean        1       1           0")
    for changes, expected in (
        ({}, {}),
        (
            {"noise": 6},
            {
                "loops_light": {"extended: config=a noise=4,5", "extended: config=b noise=4,5"},
                "mean": {"upstream extended: loops_light"},
            },
        ),  # no row of the table says why `bulk` changed
        ({"shift": 1.0}, {"first": {"upstream changed: bulk (changed parameter: shift 0.0 -> 1.0)"}}),
        ({"configs": "a"}, {"mean": {"upstream changed: loops_light (fewer chunks)"}}),
        (
            {"chunk": 4},
            {
                "loops_light": {"changed chunk size: noise 2 -> 4"},
                "mean": {"upstream changed: loops_light"},
            },
        ),
    ):
        assert reasons(workflow(**changes), store) == expected
    store.remove("first", next(iter(store.keys("first"))))
    assert reasons(workflow(), store) == {"first": {"unfinished"}}

    @stage(version="2", over=("config",))
    def field(*, at: At, scale: float = 1.0, path: Path | None = None) -> toys.Field:
        raise AssertionError("is only planned")

    w = Workflow("demo")
    place = Place(name="loops_light", over={"noise": range(4)}, chunk={"noise": 2})
    w.add(toys.loops, w.add(field, place=Place(over={"config": list("ab")})), place=place, mass=0.5)
    wanted = {"field": {"changed version: 1 -> 2"}, "loops_light": {"upstream changed: field"}}
    assert reasons(w, store) == wanted


def test_what_was_changed_back_and_extended(store: Store, compute: Compute) -> None:
    """The last plan had another mass; what is missing is only what this one adds to the one before."""
    compute(workflow(noise=4, mass=0.5))
    compute(workflow(noise=4, mass=0.25))
    assert reasons(workflow(noise=8, mass=0.5), store) == {
        "loops_light": {f"extended: config={c} noise={n}" for c in "ab" for n in ("4,5", "6,7")},
        "mean": {"upstream extended: loops_light"},
    }
    text = explain(plan(workflow(noise=8, mass=0.5), store))
    assert "loops_light  loops       8       4           4  extended: noise=4..7" in text
    (lost, *_) = (c for c in plan(workflow(mass=0.5), store).chunks if c.node.name == "loops_light")
    store.remove("loops", lost.key)
    assert reasons(workflow(noise=4, mass=0.5), store) == {"loops_light": {"unfinished"}}
    assert reasons(workflow(noise=4, mass=0.125), store)["loops_light"] == {
        "changed parameter: mass 0.25 -> 0.125"
    }


def renamed(links: str, mass: float = 0.5, scale: float = 1.0) -> Workflow:
    """A chain whose first node is called otherwise than before."""
    w = Workflow("demo")
    first = w.add(toys.field, place=Place(name=links, over={"config": list("ab")}), scale=scale)
    place = Place(name="loops_light", over={"noise": range(4)}, chunk={"noise": 2})
    w.add(toys.mean, w.add(toys.loops, first, place=place, mass=mass))
    return w


def test_a_new_name_of_an_input_is_no_reason(store: Store, compute: Compute) -> None:
    """Keys hold no names: what an upgrade calls otherwise, and was never computed, is unfinished."""
    compute(renamed("links"))
    for key in list(store.keys("loops")):
        store.remove("loops", key)
    (mean,) = store.keys("mean")
    store.remove("mean", mean)
    assert reasons(renamed("operator"), store) == {"loops_light": {"unfinished"}, "mean": {"unfinished"}}
    assert reasons(renamed("operator", mass=0.25), store) == {
        "loops_light": {"changed parameter: mass 0.5 -> 0.25"},
        "mean": {"upstream changed: loops_light"},
    }
    assert reasons(renamed("operator", scale=2.0), store) == {
        "operator": {"changed parameter: scale 1.0 -> 2.0"},
        "loops_light": {"upstream changed: operator"},
        "mean": {"upstream changed: operator"},
    }


def test_inputs_that_changed_are_named_as_in_the_table(store: Store, compute: Compute) -> None:
    def wired(first: str, through: bool) -> Workflow:
        w = Workflow("demo")
        field = w.add(toys.field, place=Place(name=first, over={"config": ["a"]}), scale=float(len(first)))
        other = w.add(toys.field, place=Place(name="other", over={"config": ["a"]}), scale=9.0)
        bulk = w.add(toys.bulk, field, place=Place(name="bulk", over={"noise": range(2)}))
        again = w.add(toys.bulk, other, place=Place(name="again", over={"noise": range(2)}), shift=2.0)
        w.add(toys.first, again if through else bulk)
        return w

    compute(wired("field", False))
    assert reasons(wired("field", True), store) == {"first": {"changed inputs: field -> other"}}


def test_a_changed_file_is_named(store: Store, compute: Compute, tmp_path: Path) -> None:
    paths = {config: tmp_path / f"{config}.txt" for config in "ab"}

    def reading() -> Workflow:
        w = Workflow("reading")
        w.add(toys.field, place=Place(over={"config": list("ab")}, files={"path": paths}))
        return w

    for path in paths.values():
        path.write_text("1")
    compute(reading())
    for content in ("2", "3"):  # then by a manifest of an older version
        paths["b"].write_text(content)
        assert reasons(reading(), store) == {"field": {f"changed file: {paths['b']}"}}
        if content == "2":
            list_chunk_by_chunk(store, "reading")


def list_chunk_by_chunk(store: Store, workflow: str) -> None:
    """Rewrite a manifest as versions wrote it that listed each chunk with its coordinates."""
    path = store.path / ".workflows" / f"{workflow}.json"
    manifest = json.loads(path.read_text())
    for node in manifest["nodes"].values():
        keys, files = iter(textwrap.wrap(node.pop("keys"), 64)), node.pop("files")
        node["chunks"] = []
        for at in product(*map(enumerate, node.pop("blocks"))):
            chunk = {"at": [block for _, block in at], "key": next(keys)}
            first = at[0][0] if at else 0
            held = {"files": {name: digests[first] for name, digests in files.items()}} if files else {}
            node["chunks"].append({**chunk, **held})
    path.write_text(json.dumps(manifest))


def test_a_manifest_of_an_older_version_says_the_same(store: Store, compute: Compute) -> None:
    compute(workflow())
    path = store.path / ".workflows" / "demo.json"
    written = path.read_text()
    result, extended = open_result(store, "loops_light").load(), reasons(workflow(noise=6), store)
    list_chunk_by_chunk(store, "demo")
    assert '"chunks":' in path.read_text().replace(" ", "") and path.read_text() != written
    assert open_result(store, "loops_light").load().identical(result)
    assert reasons(workflow(noise=6), store) == extended
    compute(workflow())  # nothing to do but to write it as it is written today
    assert path.read_text() == written


def test_a_damaged_manifest_is_none(store: Store, compute: Compute) -> None:
    compute(renamed("field"))
    path = store.path / ".workflows" / "demo.json"
    for name, value in (("keys", "0" * 63), ("over", ["noise"]), ("blocks", 7), ("chunks", [])):
        manifest = json.loads(written := path.read_text())
        node = manifest["nodes"]["loops_light"]
        node[name] = value
        if name == "chunks":
            del node["keys"]
        assert Manifest.read(store, "demo")
        path.write_text(json.dumps(manifest))
        assert Manifest.read(store, "demo") is None
        path.write_text(written)


def test_a_file_is_compared_with_its_own_last_run(store: Store, compute: Compute) -> None:
    """One that was never run with the last run of its workflow, as one that was renamed."""

    def of_file(path: str, changes: tuple[str, ...], mass: float) -> Workflow:
        made = renamed("field", mass)
        made.source = Source("text", f"/there/{path}", "/there", changes)
        return made

    compute(of_file("a.yaml", (), 0.5))
    compute(of_file("b.yaml", (), 0.25))
    for file, changes, before in (("a.yaml", (), 0.5), ("b.yaml", (), 0.25), ("a.yaml", ("mass=9",), 0.25)):
        why = reasons(of_file(file, changes, 0.125), store)
        assert why["loops_light"] == {f"changed parameter: mass {before} -> 0.125"}

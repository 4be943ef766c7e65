"""Declarations and wiring: what is accepted, what is refused and with which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import toy_stages as toys

from pipeline import At, Chunks, Dims, FromParameter, InputError, Keyed, Node, Place, Workflow, stage
from pipeline.declare.coordinates import blocks, describe_values, sorted_unique
from pipeline.declare.stage import stage_of
from pipeline.planning.plan import plan
from pipeline.store.store import Store


class Out(NamedTuple):
    values: Annotated[np.ndarray, Dims("noise", "time")]


class Unnamed(NamedTuple):
    values: np.ndarray


def declared(function: Callable[..., Any], **options: Any) -> Any:
    return stage(**{"version": "1", **options})(function)


def test_a_stage_stays_a_function_and_at_works_bare() -> None:
    at = At(config="a", noise=(0, 1))
    result = toys.loops(toys.field(at=At(config="a")), at=at, mass=0.5)
    assert result.current.shape == (2, 4)
    assert at.statistics["iterations"] == [0, 1]
    assert at.reports == [{"done": 2, "total": 2, "residual": 1e-9}]
    assert at["noise"] == (0, 1)
    assert at.one("config") == "a"
    assert at.backend == "cpu"
    with pytest.raises(InputError, match="2 coordinates along 'noise'"):
        at.one("noise")
    with pytest.raises(InputError, match="did you mean 'noise'"):
        at["nois"]


def test_the_declaration_is_read_from_the_signature() -> None:
    found = stage_of(toys.loops)
    assert found.name == "loops"
    assert [(i.name, i.result, i.reduces) for i in found.inputs] == [("field", toys.Field, False)]
    assert [p.name for p in found.parameters] == ["mass"]
    expected = [("current", ("noise", "time")), ("total", ("noise",))]
    assert [(o.name, o.dims) for o in found.outputs] == expected
    assert found.lone_dims() == ("config",)
    assert stage_of(toys.mean).inputs[0].reduces


def test_a_workflow_beyond_what_a_plan_can_hold_is_refused_before_its_chunks_are_made() -> None:
    w, field = toys.fields(range(900), "large")
    with pytest.raises(InputError, match=r"'loops': 100000000 coordinates along 'noise', at most 4000000"):
        place = Place(over={"noise": range(100_000_000)}, chunk={"noise": 10_000})
        w.add(toys.loops, field, place=place, mass=0.5)
    w.add(toys.loops, field, place=Place(over={"noise": range(4000)}, chunk={"noise": 1}), mass=0.5)
    message = (
        r"node 'more' has 900000 chunks \(900 config x 4000 noise, in chunks of \{config: 1, noise: 4\}\), "
        r"which makes 4500900 in workflow 'large'; at most 4000000 are possible: use larger chunks"
    )
    with pytest.raises(InputError, match=message):
        place = Place(name="more", over={"noise": range(4000)}, chunk={"noise": 4})
        w.add(toys.loops, field, place=place, mass=0.25)
    assert list(w.nodes) == ["field", "loops"]
    place = Place(name="more", over={"noise": range(300)}, chunk={"noise": 4})
    w.add(toys.loops, field, place=place, mass=0.25)


def test_labels_are_of_dimensions_of_the_outputs_alone() -> None:
    def made(noise: toys.Loops, *, at: At) -> Out:
        raise AssertionError("is only declared")

    assert stage_of(declared(made, labels={"time": ["t0", "t1"]})).labels == {"time": ("t0", "t1")}
    with pytest.raises(InputError, match=r"stage made: labels along 'tme', .* did you mean 'time'"):
        declared(made, labels={"tme": (1, 2)})
    with pytest.raises(InputError, match="labels along 'noise'"):
        declared(made, over=("noise",), labels={"noise": (1, 2)})
    with pytest.raises(InputError, match="labels along 'time' from 'times', which is none of its parameters"):
        declared(made, labels={"time": FromParameter("times")})
    with pytest.raises(InputError, match="'t0' is listed twice along dimension 'time'"):
        declared(made, labels={"time": ("t0", "t0")})


def test_what_stays_out_of_keys_must_be_a_parameter() -> None:
    def misspelt(*, at: At, limit: int) -> Out: ...

    with pytest.raises(InputError, match="'limits', which is no parameter: did you mean 'limit'"):
        declared(misspelt, over=("config",), keyed=Keyed(without=("limits",)))
    with pytest.raises(InputError, match="'limit', which is no parameter with a default of its own"):
        declared(misspelt, over=("config",), keyed=Keyed(later=("limit",)))

    def keywords(*, at: At, **rest: int) -> Out: ...
    def positional_at(at: At) -> Out: ...
    def untyped(links, *, at: At) -> Out: ...  # type: ignore[no-untyped-def]
    def array(*, at: At) -> np.ndarray: ...
    def unnamed(*, at: At) -> Unnamed: ...
    def blind() -> Out: ...

    for function, message in [
        (keywords, r"\*\*rest is not allowed"),
        (positional_at, "'at' must be keyword-only"),
        (untyped, "input 'links' needs a type"),
        (array, "return type must be a NamedTuple"),
        (unnamed, "output 'values' of Unnamed has no dimension names"),
        (blind, "takes neither inputs nor 'at: At'"),
    ]:
        with pytest.raises(InputError, match=message):
            declared(function, over=("noise",))


def wired(**options: Any) -> tuple[Workflow, Node]:
    w = Workflow("w")
    return w, w.add(toys.field, place=Place(over={"config": ["a", "b"]}, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mas": 1.0}, "loops has no parameter 'mas': did you mean 'mass'"),
        ({}, "parameter 'mass' of stage loops is missing"),
        ({"mass": 1.0, "over": {"nose": [0]}}, "not mapped over 'nose': did you mean 'noise'"),
        ({"mass": 1.0, "over": {}}, "give the coordinates of 'noise'"),
        (
            {"mass": 1.0, "over": {"noise": [0], "config": ["c"]}},
            "config='c' is not a coordinate of input 'field'",
        ),
        ({"mass": 1.0, "over": {"noise": [0, 0]}}, "coordinate 0 is listed twice along dimension 'noise'"),
        ({"mass": 1.0, "over": {"noise": []}}, "dimension 'noise' has no coordinates"),
        ({"mass": 1.0, "over": {"noise": [0.5]}}, "a coordinate must be a str or an int, got 0.5"),
        ({"mass": 1.0, "chunk": {"config": 2}}, "chunk size along 'config' must be 1, got 2"),
        ({"mass": 1.0, "chunk": {"noise": 0}}, "chunk size along 'noise' must be at least 1, got 0"),
        ({"mass": 1.0, "chunk": {"nois": 1}}, "not a dimension: did you mean 'noise'"),
        ({"mass": 1.0, "name": "field"}, "node 'field' exists already"),
    ],
)
def test_wiring_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    w, field = wired()
    place = {name: options[name] for name in ("name", "over", "chunk") if name in options}
    parameters = {name: value for name, value in options.items() if name not in place}
    with pytest.raises(InputError, match=message):
        w.add(toys.loops, field, place=Place(**{"over": {"noise": [0, 1]}, **place}), **parameters)


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(InputError, match="'len' is not a stage"):
        Workflow("w").add(len)

    w, field = wired()
    loops = w.add(toys.loops, field, place=Place(over={"noise": [0]}), mass=1.0)
    with pytest.raises(InputError, match=r"stage loops takes \(field\), got 0 nodes"):
        w.add(toys.loops, place=Place(name="x"), mass=1.0)
    with pytest.raises(InputError, match="input 'field' takes Field, but 'loops' gives Loops"):
        w.add(toys.loops, loops, place=Place(name="x"), mass=1.0)
    with pytest.raises(InputError, match="input 'field' belongs to another workflow"):
        Workflow("v").add(toys.loops, field, mass=1.0)

    @stage(version="1", over=("config",))
    def wrong(loops: toys.Loops, *, at: At) -> toys.Field: ...

    w, field = wired()
    loops = w.add(toys.loops, field, place=Place(over={"noise": [0]}), mass=1.0)
    with pytest.raises(
        InputError, match=r"has dimension 'noise', which stage wrong lacks: .* Chunks\[Loops\]"
    ):
        w.add(wrong, loops)

    @stage(version="1", over=("config", "noise"))
    def both(one: toys.Loops, two: toys.Loops, *, at: At) -> toys.Loops: ...

    w, field = wired()
    few = w.add(toys.loops, field, place=Place(name="few", over={"noise": [0, 1]}), mass=1.0)
    many = w.add(toys.loops, field, place=Place(name="many", over={"noise": range(4)}), mass=1.0)
    with pytest.raises(InputError, match="inputs few, many differ along 'noise'; say which"):
        w.add(both, few, many)
    assert w.add(both, few, many, place=Place(over={"noise": [0, 1]})).over["noise"] == (0, 1)


def test_misaligned_chunks_are_refused() -> None:
    """A transient object that is no tuple of arrays can be neither cut nor joined."""

    @stage(version="1", over=("noise",), transient=True)
    def opaque(*, at: At) -> toys.Setup: ...

    @stage(version="1", over=("noise",))
    def reader(opaque: toys.Setup, *, at: At) -> Out: ...

    @stage(version="1", over=("config", "noise"))
    def sums(field: toys.Field, *, at: At) -> Joint: ...

    w, field = wired()
    made = w.add(opaque, place=Place(over={"noise": range(4)}, chunk={"noise": 2}))
    with pytest.raises(
        InputError, match=r"chunks of 'opaque' along 'noise' do not fit: .* use chunk=\{'noise': 2\}"
    ):
        w.add(reader, made, place=Place(chunk={"noise": 1}))
    with pytest.raises(InputError, match="chunks of 'field' along 'config' do not fit"):
        w.add(sums, field, place=Place(over={"noise": [0]}, chunk={"config": 2}))
    assert w.add(reader, made).chunk == {"noise": 2}


class Joint(NamedTuple):
    values: Annotated[np.ndarray, Dims("config", "noise")]


def test_files_per_coordinate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file 'path' for config='b'"):
        wired(files={"path": {"a": tmp_path / "a"}})
    _, field = wired(files={"path": {"a": tmp_path / "a", "b": tmp_path / "b", "c": tmp_path / "c"}})
    assert field.files == {"path": {"a": tmp_path / "a", "b": tmp_path / "b"}}
    assert "path" not in field.parameters


def test_coordinates_in_blocks_and_in_order() -> None:
    assert blocks(range(5), 2) == [(0, 1), (2, 3), (4,)]
    assert blocks(range(2, 8), 2) == [(2, 3), (4, 5), (6, 7)]
    assert blocks((1, 2, 9), 4) == [(1, 2), (9,)]
    assert blocks("abc", 2) == [("a", "b"), ("c",)]

    assert sorted_unique("config", ["l.10", "l.9", "k.100"]) == ("k.100", "l.9", "l.10")
    assert describe_values((0, 1, 2, 3)) == "0..3"
    assert describe_values((0, 2)) == "0,2"


def test_dimensions_align_by_name() -> None:
    w, field = wired()
    loops = w.add(toys.loops, field, place=Place(over={"noise": range(4)}, chunk={"noise": 2}), mass=1.0)
    w.add(toys.config_mean, loops)
    w.add(toys.mean, loops)
    inputs = {
        (chunk.node.name, *chunk.coordinates.values()): [c.coordinates for c in chunk.inputs[0]]
        for chunk in plan(w, Store("/nowhere/store")).chunks
        if chunk.inputs
    }
    assert inputs["loops", ("b",), (2, 3)] == [{"config": ("b",)}]
    noises = ((0, 1), (2, 3))
    assert inputs["config_mean", ("b",)] == [{"config": ("b",), "noise": noise} for noise in noises]
    pairs = [((config,), noise) for config in "ab" for noise in noises]
    assert [tuple(at.values()) for at in inputs["mean",]] == pairs


def test_many_inputs_of_one_kind() -> None:
    @stage(version="1")
    def total(*loops: Chunks[toys.Loops]) -> toys.Mean: ...

    w, field = wired()
    light = w.add(toys.loops, field, place=Place(name="light", over={"noise": [0]}), mass=1.0)
    strange = w.add(toys.loops, field, place=Place(name="strange", over={"noise": [0]}), mass=2.0)
    node = w.add(total, light, strange)
    assert [argument.name for argument, _ in node.arguments()] == ["loops", "loops"]

    found = toys.Loops(np.zeros((2, 5)), np.zeros(2, complex))
    assert repr(found) == "Loops(current=float64 [2, 5], total=complex128 [2])"

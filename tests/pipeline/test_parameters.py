"""Parameters of stages: none can get lost among the engine's options; dataclasses stand field by field."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import toy_stages as toys

from pipeline import At, Cost, Dims, InputError, Keyed, Node, Outcome, Place, Store, Workflow, plan, stage
from pipeline.planning.manifest import describe_node

Compute = Callable[[Workflow], Outcome]


class Number(NamedTuple):
    value: Annotated[np.ndarray, Dims("part")]


WORDS = (
    *("name", "over", "chunk", "files", "memory", "device_memory", "stored", "fits"),  # once of the engine
    *("upstream", "function", "self"),
)
for word in WORDS:
    exec(
        f"@stage(version='1')\ndef old_{word}(*, at: At, {word}: int = 5) -> Number:\n"
        f"    return Number(np.array([{word}]))"
    )


def named(word: str) -> Callable[..., Number]:
    return globals()[f"old_{word}"]


@pytest.mark.parametrize("word", WORDS)
def test_a_parameter_is_given_whatever_its_name(word: str) -> None:
    w = Workflow("w")
    default, node = w.add(named(word), place=Place(name="default")), w.add(named(word), **{word: 7})
    assert default.parameters == {word: 5} and node.parameters == {word: 7}
    first, second = plan(w, Store("/nowhere/store")).chunks
    assert first.key != second.key


def test_parameters_of_any_name_reach_their_stages(compute: Compute, store: Store) -> None:
    w = Workflow("w")
    for word in WORDS:
        w.add(named(word), **{word: 7})
    planned = plan(w, store)
    assert compute(w).exit_status == 0
    for chunk in planned.chunks:
        assert store.arrays(chunk.node.stage.name, chunk.key)["value"][...].tolist() == [7]


def test_what_is_no_place_or_name_is_refused() -> None:
    def misplaced(*, at: At, place: str) -> Number: ...

    with pytest.raises(InputError, match="stage misplaced: a parameter cannot be called 'place'"):
        stage(version="1")(misplaced)

    with pytest.raises(InputError, match=r"stage '\.\./x': the name in Keyed\(name=\.\.\.\) must be a plain"):
        stage(version="1", keyed=Keyed(name="../x"))(loose)

    with pytest.raises(InputError, match=r"place must be a Place\(\.\.\.\), got {.name.: .x.}"):
        Workflow("w").add(named("name"), place={"name": "x"})


@dataclass(frozen=True)
class Solve:
    solver: str
    tolerance: float
    max_iterations: int = 100


@dataclass(frozen=True)
class Noise:
    seed: int
    kind: str = field(metadata={"key": "noise"})
    dilution: tuple[int, ...] = (0,)


def loose(
    field: toys.Field,
    *,
    at: At,
    solver: str,
    tolerance: float,
    noise: str,
    seed: int,
    dilution: tuple[int, ...] = (0,),
    max_iterations: int = 100,
    mass: float,
) -> Number: ...


@stage(version="2", keyed=Keyed(name="loose", without=("max_iterations",)), over=("config",))
def grouped(field: toys.Field, *, at: At, solve: Solve, noise: Noise, mass: float) -> Number:
    at.record(limit=solve.max_iterations)
    return Number(np.array([solve.tolerance, noise.seed, mass]))


def with_groups(limit: int = 100) -> tuple[Workflow, Node]:
    w, source = toys.fields()
    return w, w.add(grouped, source, solve=Solve("cg", 1e-8, limit), noise=Noise(7, "z2"), mass=0.25)


GOLDEN = "31aea2bf0cc20eeafb9165efc8202ba86c028227"
"""The beginning of the key, from before dataclasses were flattened."""


def test_a_dataclass_has_the_key_of_loose_parameters() -> None:
    w, source = toys.fields()
    function = stage(version="2", over=("config",), keyed=Keyed(without=("max_iterations",)))(loose)
    parameters = {"solver": "cg", "tolerance": 1e-8, "noise": "z2", "seed": 7, "mass": 0.25}
    node = w.add(function, source, **parameters)
    loose_chunk = plan(w, Store("/nowhere/store")).chunks[-1]
    for limit in (100, 3):
        other, gathered = with_groups(limit)
        grouped_chunk = plan(other, Store("/nowhere/store")).chunks[-1]
        assert grouped_chunk.key == loose_chunk.key
        assert describe_node(gathered, "cpu") == describe_node(node, "cpu")
    assert loose_chunk.key[:40] == GOLDEN


def test_a_dataclass_reaches_the_stage_and_its_fields_the_record(compute: Compute, store: Store) -> None:
    w, _ = with_groups(limit=3)
    planned = plan(w, store)
    assert compute(w).exit_status == 0
    key = planned.chunks[-1].key
    assert store.arrays("loose", key)["value"][...].tolist() == [1e-8, 7.0, 0.25]
    record = store.record("loose", key)
    assert record["statistics"] == {"limit": 3}
    assert record["parameters"] == {
        **{"solver": "cg", "tolerance": 1e-8, "max_iterations": 3},
        **{"seed": 7, "noise": "z2", "dilution": [0], "mass": 0.25},
    }
    manifest = json.loads((store.path / ".workflows" / "w.json").read_text())
    assert manifest["nodes"]["loose"]["parameters"].keys() == record["parameters"].keys() - {"max_iterations"}


@dataclass
class Changeable:
    solver: str = "cg"


def test_dataclasses_in_a_list_or_absent_are_values_of_their_parameter() -> None:
    @stage(version="1")
    def several(*, at: At, solves: tuple[Solve, ...], noise: Noise | None = None) -> Number: ...

    w = Workflow("w")
    node = w.add(several, solves=(Solve("cg", 1.0), Solve("gcr", 2.0)))
    first = {"type": "Solve", "solver": "cg", "tolerance": 1.0, "max_iterations": 100}
    content = describe_node(node, "cpu")["parameters"]
    assert content == {"solves": [first, {**first, "solver": "gcr", "tolerance": 2.0}], "noise": None}
    with pytest.raises(InputError, match="parameter 'noise' must be a Noise, got 7"):
        w.add(several, place=Place(name="other"), solves=(), noise=7)


def test_dataclass_parameters_are_checked_where_they_are_declared() -> None:
    def clashing(*, at: At, solve: Solve, tolerance: float) -> Number: ...
    def twice(*, at: At, light: Solve, strange: Solve) -> Number: ...
    def changeable(*, at: At, solve: Changeable) -> Number: ...

    for function, message in [
        (clashing, "parameters 'solve' and 'tolerance' would both stand as 'tolerance' in keys"),
        (twice, "parameters 'light' and 'strange' would both stand as 'solver'"),
        (changeable, "parameter 'solve' is a Changeable, which must be a frozen dataclass"),
    ]:
        with pytest.raises(InputError, match=message):
            stage(version="1")(function)
    with pytest.raises(InputError, match="'max_iteration', which is no parameter: did you mean 'max_iterat"):
        stage(version="1", keyed=Keyed(without=("max_iteration",)))(loose)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tolerance": 1e-8}, r"no parameter 'tolerance'; 'tolerance' is a field of solve=Solve\(\.\.\.\)"),
        ({"noise_seed": 3}, r"no parameter 'noise_seed'; 'seed' is a field of noise=Noise\(\.\.\.\)"),
        ({"solv": 1}, "no parameter 'solv': did you mean 'solve'"),
        ({"solve": {"solver": "cg"}}, "parameter 'solve' must be a Solve, got {'solver': 'cg'}"),
        ({"solve": Solve("cg", 1.0), "mass": 1}, "parameter 'noise' of stage loose is missing"),
    ],
)
def test_mistakes_with_dataclass_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    w, source = toys.fields()
    with pytest.raises(InputError, match=message):
        w.add(
            grouped,
            source,
            **{"noise": Noise(1, "z2"), "mass": 1.0, **parameters} if len(parameters) == 1 else parameters,
        )


def test_a_stage_says_what_it_costs() -> None:
    def cost(node: Node) -> Cost:
        (source,) = node.inputs
        return Cost(memory=100 * node.chunk["noise"], stored=node.parameters["width"] + source.cost.stored)

    @stage(version="1", over=("config",), cost=lambda node: Cost(stored=40))
    def below(*, at: At) -> toys.Field: ...

    @stage(version="1", over=("config", "noise"), cost=cost)
    def costly(field: toys.Field, *, at: At, width: int) -> toys.Loops: ...

    w = Workflow("w")
    source = w.add(below, place=Place(over={"config": ["a"]}))
    node = w.add(costly, source, place=Place(over={"noise": range(6)}, chunk={"noise": 3}), width=2)
    assert node.cost == Cost(memory=300, stored=42)
    planned = plan(w, Store("/nowhere/store"))
    assert (planned.memory, planned.stored) == (300, 40 + 2 * 42)


@dataclass(frozen=True)
class Shape:
    size: float = 1.0


@dataclass(frozen=True)
class Square(Shape):
    seed: int = 0


@dataclass(frozen=True)
class Named:
    shape: int = 1


def key_of(function: Callable[..., Number], **parameters: Any) -> str:
    w = Workflow("w")
    w.add(function, **parameters)
    return plan(w, Store("/nowhere/store")).chunks[-1].key


def test_no_value_hides_another_from_the_key() -> None:
    @stage(version="1")
    def untyped(*, at: At, setup: Any = None, seed: int = 5) -> Number: ...

    @stage(version="1")
    def either(*, at: At, shape: Square | Named, size: float = 2.0) -> Number: ...

    @stage(version="1")
    def annotated(*, at: At, shape: Annotated[Shape, "of the source"], seed: int = 5) -> Number: ...

    assert key_of(untyped, setup=Square(seed=1), seed=7) != key_of(untyped, setup=Square(seed=2), seed=7)
    assert key_of(either, shape=Square(3.0)) != key_of(either, shape=Square(4.0))
    assert key_of(annotated, shape=Shape(3.0)) != key_of(annotated, shape=Shape(4.0))

    def absent(*, at: At, named: Named, shape: Shape | None = None) -> Number: ...
    def clashing(*, at: At, shape: Annotated[Shape, "of the source"], size: float) -> Number: ...

    with pytest.raises(InputError, match="parameters 'named' and 'shape' would both stand as 'shape'"):
        stage(version="1")(absent)
    with pytest.raises(InputError, match="parameters 'shape' and 'size' would both stand as 'size'"):
        stage(version="1")(clashing)
    with pytest.raises(InputError, match=r"parameter 'shape' must be a Shape, got Square\("):
        key_of(annotated, shape=Square())


@pytest.mark.parametrize(
    "cost", [None, 5, {"memory": 3}, Cost, Cost(memory=-1), Cost(stored=1.5), Cost(device_memory=None)]
)
def test_a_cost_that_is_none_is_refused(cost: Any) -> None:
    @stage(version="1", cost=lambda node: cost)
    def costly(*, at: At) -> Number: ...

    with pytest.raises(InputError, match="the cost function of stage costly must return a Cost of whole"):
        Workflow("w").add(costly)

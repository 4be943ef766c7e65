"""A workflow: nodes (stages with their parameters and coordinates) wired by name of dimension."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from pipeline.declare.coordinates import Coordinate, Coordinates, blocks, sorted_unique
from pipeline.declare.node import Cost, Node, Place, Stage
from pipeline.declare.parameter import Parameters, accepted
from pipeline.declare.signature import Input
from pipeline.declare.stage import stage_of
from stages.base.errors import InputError, suggestion

LARGEST = 4_000_000
"""Chunks that a workflow may have, and coordinates along one dimension: a plan holds each in memory, and each
chunk is a file or a folder."""

Files = Mapping[str, Mapping[Any, Path] | Path]


@dataclass(frozen=True)
class Source:
    """The parameter file that a workflow was made of: its text, its path, and where its paths begin."""

    text: str
    path: str
    folder: str
    changes: tuple[str, ...] = ()
    """Values that `--set` gave instead of the file, `KEY=VALUE`, in order."""

    @property
    def label(self) -> str:
        """Path and changes: two files are two labels, and so are two values of a key of one file."""
        return f"{self.path}{options_text(self.changes)}"


def file_and_changes(text: str) -> tuple[str, tuple[str, ...]]:
    """Path and changes of a file that is written with them: `my.yaml --set masses.light=0.1`.

    Raises:
        InputError: quotes that are not closed.
    """
    path, *options = text.split(" --set ")
    try:
        return path.strip(), tuple(" ".join(shlex.split(option)) for option in options)
    except ValueError as error:
        raise InputError(
            f"{text}: {error}: write FILE --set KEY=VALUE, with quotes around odd values"
        ) from None


def options_text(changes: Iterable[str]) -> str:
    """Changes of a file as a command takes them: ` --set masses.light=0.1`."""
    return "".join(f" --set {shlex.quote(change)}" for change in changes)


@dataclass(frozen=True)
class Economies:
    """Values of a parameter file that take less memory, and the workflow that they make."""

    values: Mapping[str, Sequence[Any]]
    """By key, such as `solves.block`: what may stand there instead, what takes more memory first. None: the
    key is left out."""
    workflow: Callable[[Mapping[str, Any]], Workflow]
    """The workflow with some of these values; raises InputError where they cannot be together."""


class Workflow:
    """A directed graph of nodes, in the order in which they were added.

    Args:
        name: of the workflow, in the store.
        about: what all its results say of themselves beside their own parameters, in JSON's types; in no key.
        source: the file that it was made of, which a run keeps in the store.
    """

    def __init__(
        self, name: str, about: Mapping[str, Any] | None = None, source: Source | None = None
    ) -> None:
        if not name or "/" in name or name.startswith("."):
            raise InputError(f"workflow name must be a plain word, got {name!r}")
        self.name = name
        self.about = dict(about or {})
        self.source = source
        self.economies: Economies | None = None
        """For remedies where a plan does not fit."""
        self.nodes: dict[str, Node] = {}

    def add(
        self, function: Callable[..., Any], /, *upstream: Node, place: Place | None = None, **parameters: Any
    ) -> Node:
        """Add a stage.

        Args:
            function: the stage, decorated by `stage`, or a `functools.partial` of it with parameters, which
                type checkers compare with the stage's signature.
            upstream: the nodes whose results are the stage's positional arguments, in order. A dimension of
                the stage that `place` does not give takes the coordinates of the upstream nodes.
            place: the node's name, coordinates, chunk sizes and files.
            parameters: the stage's keyword-only arguments, those of a `partial` aside.

        Raises:
            InputError: unknown or missing parameters, dimensions or inputs, wrong types of upstream results.
        """
        if isinstance(function, partial):
            parameters = {**function.keywords, **parameters}
            function = function.func
        stage, place = stage_of(function), Place() if place is None else place
        if not isinstance(place, Place):
            raise InputError(f"stage {stage.name}: place must be a Place(...), got {place!r}")
        label = place.name or stage.name
        if label in self.nodes:
            raise InputError(f"node {label!r} exists already in workflow {self.name!r}: give Place(name=...)")
        self._check_membership(label, upstream)
        _check_inputs(label, stage, upstream)
        extents = _extents(label, stage, upstream, place.over)
        sizes = _chunk_sizes(label, stage, upstream, place.chunk)
        node = Node(
            name=label,
            stage=stage,
            inputs=upstream,
            over=extents,
            chunk=sizes,
            parameters=_parameters(label, stage, parameters, place.files),
            files=_files(label, stage, extents, sizes, place.files),
        )
        for argument, source in node.arguments():
            _check_reduction(node, argument, source)
            _check_alignment(node, argument, source)
        self._check_size(node)
        if stage.cost:
            node = replace(node, cost=_cost(node, stage.cost(node)))
        self.nodes[label] = node
        return node

    def _check_size(self, node: Node) -> None:
        """Refuse more chunks than a plan can hold."""
        count = node.chunk_count()
        total = count + sum(other.chunk_count() for other in self.nodes.values())
        if total > LARGEST:
            extents = " x ".join(f"{len(values)} {dim}" for dim, values in node.over.items())
            sizes = ", ".join(f"{dim}: {size}" for dim, size in node.chunk.items())
            raise InputError(
                f"node {node.name!r} has {count} chunks ({extents}, in chunks of {{{sizes}}}), which makes "
                f"{total} in workflow {self.name!r}; at most {LARGEST} are possible: use larger chunks"
            )

    def _check_membership(self, label: str, upstream: tuple[Node, ...]) -> None:
        for node in upstream:
            if not isinstance(node, Node):
                raise InputError(f"node {label!r}: its inputs must be nodes, got {type(node).__name__}")
            if self.nodes.get(node.name) is not node:
                raise InputError(f"node {label!r}: input {node.name!r} belongs to another workflow")


def _cost(node: Node, cost: object) -> Cost:
    """What a stage's cost function gave; refuses all but a `Cost` of whole bytes."""
    if isinstance(cost, Cost):
        sizes = (cost.memory, cost.device_memory, cost.stored, *cost.terms.values())
        whole = all(isinstance(size, Integral) and int(size) >= 0 for size in sizes)
        if whole and sum(cost.terms.values()) <= cost.device_memory:
            return cost
    raise InputError(
        f"node {node.name!r}: the cost function of stage {node.stage.name} must return a Cost of whole "
        f"numbers of bytes, none negative, and of terms that are its device_memory or less, got {cost!r}"
    )


def _check_inputs(label: str, stage: Stage, upstream: tuple[Node, ...]) -> None:
    """Refuse other nodes than one per positional argument, returning what the argument is annotated with."""
    fixed = [argument for argument in stage.inputs if not argument.variadic]
    needed = sum(not argument.optional for argument in fixed)
    most = len(upstream) if len(fixed) < len(stage.inputs) else len(fixed)
    if not needed <= len(upstream) <= most:
        names = ", ".join(argument.name for argument in stage.inputs) or "none"
        raise InputError(f"node {label!r}: stage {stage.name} takes ({names}), got {len(upstream)} nodes")
    for position, node in enumerate(upstream):
        argument = stage.inputs[min(position, len(stage.inputs) - 1)]
        options = getattr(argument.result, "__args__", (argument.result,))
        if argument.result is not Any and node.stage.result not in options:
            raise InputError(
                f"node {label!r}: input {argument.name!r} takes {_type_name(argument.result)}, "
                f"but {node.name!r} gives {_type_name(node.stage.result)}"
            )


def _type_name(hint: object) -> str:
    return getattr(hint, "__name__", str(hint))


def _extents(
    label: str, stage: Stage, upstream: tuple[Node, ...], over: Mapping[str, Iterable[Coordinate]]
) -> Coordinates:
    """Coordinates per dimension: as given, else those of the upstream nodes, which must then agree."""
    for dim in over:
        if dim not in stage.over:
            raise InputError(
                f"node {label!r}: stage {stage.name} is not mapped over {dim!r}{suggestion(dim, stage.over)}"
            )
    extents: Coordinates = {}
    for dim in stage.over:
        sources = {node.name: node.over[dim] for node in upstream if dim in node.over}
        if dim in over:
            _check_length(label, dim, over[dim])
            extents[dim] = sorted_unique(dim, over[dim])
            _check_subset(label, dim, extents[dim], sources)
        elif not sources:
            raise InputError(
                f"node {label!r}: give the coordinates of {dim!r}, Place(over={{{dim!r}: [...]}})"
            )
        elif len(set(sources.values())) > 1:
            raise InputError(
                f"node {label!r}: inputs {', '.join(sources)} differ along {dim!r}; "
                f"say which coordinates are meant, over={{{dim!r}: [...]}}"
            )
        else:
            extents[dim] = next(iter(sources.values()))
    return extents


def _check_length(label: str, dim: str, values: Iterable[Coordinate]) -> None:
    """Refuse a dimension that is too long before its coordinates are made."""
    if isinstance(values, Sized) and len(values) > LARGEST:
        raise InputError(
            f"node {label!r}: {len(values)} coordinates along {dim!r}, at most {LARGEST} are possible: "
            "give fewer, or let each stand for more"
        )


def _check_subset(
    label: str, dim: str, wanted: tuple[Coordinate, ...], sources: Mapping[str, tuple[Coordinate, ...]]
) -> None:
    for name, values in sources.items():
        known = set(values)
        absent = [value for value in wanted if value not in known]
        if absent:
            raise InputError(f"node {label!r}: {dim}={absent[0]!r} is not a coordinate of input {name!r}")


def _chunk_sizes(
    label: str, stage: Stage, upstream: tuple[Node, ...], chunk: Mapping[str, int]
) -> dict[str, int]:
    """Coordinates per chunk: as given, else the largest of the inputs, else 1."""
    lone = stage.lone_dims()
    for dim, size in chunk.items():
        if dim not in stage.over:
            raise InputError(
                f"node {label!r}: chunk along {dim!r}, which is not a dimension{suggestion(dim, stage.over)}"
            )
        if not isinstance(size, int) or size < 1:
            raise InputError(f"node {label!r}: chunk size along {dim!r} must be at least 1, got {size!r}")
        if size > 1 and dim in lone:
            raise InputError(
                f"node {label!r}: chunk size along {dim!r} must be 1, got {size}: "
                f"not every output of {stage.name} names that dimension"
            )
    inherited = {dim: max((node.chunk.get(dim, 1) for node in upstream), default=1) for dim in stage.over}
    return {dim: chunk.get(dim, 1 if dim in lone else inherited[dim]) for dim in stage.over}


def _parameters(label: str, stage: Stage, values: Mapping[str, Any], files: Files) -> Parameters:
    """All parameters with defaults filled in, those that are files left out."""
    known = {parameter.name for parameter in stage.parameters}
    for name in files:
        if name not in known:
            raise InputError(
                f"node {label!r}: stage {stage.name} has no parameter {name!r}{suggestion(name, known)}"
            )
        if name in values:
            raise InputError(f"node {label!r}: {name!r} is given as a parameter and in Place(files=...)")
    return accepted(label, stage.name, [each for each in stage.parameters if each.name not in files], values)


def _files(
    label: str, stage: Stage, extents: Coordinates, sizes: Mapping[str, int], files: Files
) -> dict[str, dict[Coordinate, Path] | Path]:
    """File arguments: one path for all chunks, or one per coordinate of the first dimension."""
    checked: dict[str, dict[Coordinate, Path] | Path] = {}
    for name, paths in files.items():
        if not isinstance(paths, Mapping):
            checked[name] = Path(paths)
            continue
        if not stage.over:
            raise InputError(f"node {label!r}: files per coordinate, but stage {stage.name} has no dimension")
        dim = stage.over[0]
        if sizes[dim] != 1:
            raise InputError(
                f"node {label!r}: one file per coordinate of {dim!r} needs one coordinate per chunk"
            )
        absent = [value for value in extents[dim] if value not in paths]
        if absent:
            raise InputError(f"node {label!r}: no file {name!r} for {dim}={absent[0]!r}")
        checked[name] = {value: Path(paths[value]) for value in extents[dim]}
    return checked


def _check_reduction(node: Node, argument: Input, upstream: Node) -> None:
    """An input with a dimension that the stage lacks is reduced over, and must be declared so."""
    reduced = [dim for dim in upstream.over if dim not in node.over]
    if reduced and not argument.reduces:
        raise InputError(
            f"node {node.name!r}: {argument.name!r} ({upstream.name!r}) has dimension {reduced[0]!r}, "
            f"which stage {node.stage.name} lacks: annotate it as Chunks[{_type_name(argument.result)}]"
        )


def _check_alignment(node: Node, argument: Input, upstream: Node) -> None:
    """Arrays can be cut and joined along dimensions that they name, anything else is passed on whole."""
    whole = upstream.stage.lone_dims() if upstream.stage.outputs else upstream.stage.over
    for dim in (dim for dim in whole if dim in node.over):
        held = set(blocks(upstream.over[dim], upstream.chunk[dim]))
        if not argument.reduces and not held.issuperset(blocks(node.over[dim], node.chunk[dim])):
            raise InputError(
                f"node {node.name!r}: chunks of {upstream.name!r} along {dim!r} do not fit: "
                f"the results of {upstream.stage.name} cannot be cut or joined there, "
                f"use chunk={{{dim!r}: {upstream.chunk[dim]}}}"
            )

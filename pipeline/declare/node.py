"""A declared stage, and a node of a workflow: a stage with what it is given and how it is cut into chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

from pipeline.declare.coordinates import Coordinate, Coordinates, blocks, describe_values
from pipeline.declare.parameter import Parameter, Parameters
from pipeline.declare.signature import Input, Output
from stages.base.gpus import Spread


@dataclass(frozen=True)
class Resources:
    """Hardware that one task of a stage needs: `device=1` is a GPU on a CUDA cluster, a worker elsewhere."""

    device: int = 0


@dataclass(frozen=True)
class Keyed:
    """Contents of a stage's keys beside its version, coordinates and inputs."""

    name: str | None = None
    """Name of the stage there and in the store; the function's unless given. A function that is renamed keeps
    its results with it."""
    without: tuple[str, ...] = ()
    """Parameters, or fields of dataclass parameters, that decide whether there is a result, but not which
    (limits of iterations)."""
    later: tuple[str, ...] = ()
    """Parameters that came after results were kept: they stand in keys only where they differ from their
    default, so that those results keep their keys."""
    chunk: bool = False
    """Whether the number of coordinates per chunk can alter a result (block solvers)."""
    backend: bool = False
    """Whether results are not reproducible across backends."""


@dataclass(frozen=True)
class Pass:
    """Work that a chunk repeats: the expected number, and the bytes that each pass moves at least.

    A forecast of time learns from records what one takes by itself and for each byte.
    """

    name: str
    count: float
    nbytes: float
    counted: str = ""
    """The statistic that tells the real number afterwards, a number or a list to be summed; empty where the
    expected number is the real one."""
    alike: tuple[object, ...] = ()
    """Settings under which one chunk's real number against the expected one tells another's."""


class Shares(Spread, Protocol):
    """The word of a stage on how the GPUs of a worker share what a task holds there."""

    @property
    def most(self) -> int:
        """GPUs that can share it."""

    def check(self, gpus: int) -> None:
        """Raise InputError where so many cannot."""

    def on_each(self, nbytes: int, gpus: int) -> int:
        """Bytes of a part of it on that GPU which holds most."""


@dataclass(frozen=True)
class Cost:
    """Bytes that a node's tasks and chunks take, for plans and for what is kept on a GPU; and its work."""

    memory: int = 0
    """Of a task, in the host's memory."""
    device_memory: int = 0
    """Of a task on a GPU, resident inputs not counted; of a resident stage, what its result takes there."""
    stored: int = 0
    """Of a chunk in the store."""
    work: tuple[Pass, ...] = ()
    """What a chunk does, without what its inputs take; for forecasts of time."""
    terms: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Parts of `device_memory` by name, in all no more than it."""
    shares: Shares | None = None
    """How GPUs share it; None: one GPU holds it."""

    def on_each(self, gpus: int) -> Cost:
        """Cost with the bytes of that GPU of a worker's which holds most."""
        if gpus == 1 or self.shares is None:
            return self
        terms = {name: self.shares.on_each(nbytes, gpus) for name, nbytes in self.terms.items()}
        other = self.shares.on_each(self.device_memory - sum(self.terms.values()), gpus)
        return replace(self, terms=terms, device_memory=sum(terms.values()) + other)


@dataclass(frozen=True)
class FromParameter:
    """Labels along a dimension that a parameter of the stage lists: names, or rows of numbers.

    axis, components: of rows, such as momenta, the second dimension and its names.
    """

    parameter: str
    axis: str = ""
    components: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A declared stage. The function stays an ordinary function; this travels beside it."""

    name: str
    function: Callable[..., Any]
    version: str
    over: tuple[str, ...]
    resources: Resources
    keyed: Keyed
    transient: bool
    resident: bool
    inputs: tuple[Input, ...]
    parameters: tuple[Parameter, ...]
    takes_at: bool
    result: Any
    outputs: tuple[Output, ...]
    labels: dict[str, tuple[Coordinate, ...] | FromParameter]
    cost: Callable[[Node], Cost] | None

    def backend(self, cluster: str) -> str:
        """Backend of its tasks on a cluster of that backend: what asks for no device stays on the CPU.

        A transient stage that asks for none has no task, and runs where its consumer runs.
        """
        return cluster if self.resources.device else "cpu"

    def lone_dims(self) -> tuple[str, ...]:
        """Dimensions that some output does not name: one coordinate per chunk there."""
        named = [set(output.dims) for output in self.outputs]
        return tuple(dim for dim in self.over if any(dim not in dims for dims in named))


@dataclass(frozen=True)
class Place:
    """The engine's options for a stage in a workflow, beside the stage's own parameters."""

    name: str | None = None
    """Name of the node; the stage's name unless given."""
    over: Mapping[str, Iterable[Coordinate]] = field(default_factory=dict)
    """Coordinates per dimension; may be a subset of those of an upstream node, which are the default."""
    chunk: Mapping[str, int] = field(default_factory=dict)
    """Number of coordinates per chunk and dimension (1, or that of the upstream node)."""
    files: Mapping[str, Mapping[Any, Path] | Path] = field(default_factory=dict)
    """File arguments of the stage: one path, or one per coordinate of the stage's first dimension. Only the
    content counts for the key."""


@dataclass(frozen=True, eq=False)
class Node:
    """One stage of a workflow, with its parameters, inputs, coordinates, chunk sizes and cost."""

    name: str
    stage: Stage
    inputs: tuple[Node, ...]
    over: Coordinates
    chunk: dict[str, int]
    parameters: Parameters
    files: dict[str, dict[Coordinate, Path] | Path] = field(default_factory=dict)
    cost: Cost = Cost()

    def arguments(self) -> Iterator[tuple[Input, Node]]:
        """Each upstream node with the argument of the stage function that it feeds."""
        declared = self.stage.inputs
        for position, node in enumerate(self.inputs):
            yield declared[min(position, len(declared) - 1)], node

    def fused(self) -> Iterator[Node]:
        """The node and the transient ones that its tasks compute on the way."""
        yield self
        for upstream in self.inputs:
            if upstream.stage.transient:
                yield from upstream.fused()

    def chunk_count(self) -> int:
        """Number of chunks, without making them."""
        return prod(map(len, self.blocks()))

    def blocks(self) -> list[list[tuple[Coordinate, ...]]]:
        """Per dimension, the coordinates of each chunk along it."""
        return [blocks(values, self.chunk[dim]) for dim, values in self.over.items()]

    def chunks(self) -> list[Coordinates]:
        """The coordinates of every chunk: all combinations of blocks, first dimension slowest."""
        return [dict(zip(self.over, block, strict=True)) for block in product(*self.blocks())]

    def __repr__(self) -> str:
        extents = ", ".join(f"{dim}={describe_values(values)}" for dim, values in self.over.items())
        return f"Node({self.name}: {self.stage.name} over {extents or 'nothing'})"

"""A plan as a store keeps it: the nodes of a workflow with the keys of their chunks.

It names chunks for people (`open_result`) and explains why a later plan differs. Nothing is decided by it:
whether a chunk exists is asked of the store alone. Where it lies, `pipeline.planning.manifest_files` says.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pipeline.declare.coordinates import Coordinate
from pipeline.declare.node import FromParameter, Node
from pipeline.declare.signature import long_names
from pipeline.planning.chunk import Block, Chunk, Position, without_collection
from pipeline.planning.key import canonical_parameters
from pipeline.planning.workflow import options_text
from pipeline.store.plain_files import content_of, json_object
from pipeline.store.record import Facts
from pipeline.store.store import ChunkId, Store
from pipeline.store.typed import expect
from stages.base.errors import InputError

DIGITS = 64
"""Of a key."""

PART = ".partial"
"""End of the name of a workflow that is another one's part: on those coordinates that are complete."""


class KeyTable(Mapping[Position, str]):
    """Keys of a node's chunks by their coordinates: all combinations of its blocks, in order."""

    def __init__(
        self, over: Sequence[str], blocks: Iterable[Iterable[Sequence[Coordinate]]], keys: str
    ) -> None:
        self._over = tuple(over)
        self._blocks = [[tuple(block) for block in along] for along in blocks]
        self._keys = keys
        chunks = prod(map(len, self._blocks))
        if len(self._blocks) != len(self._over) or len(keys) != DIGITS * chunks:
            raise ValueError(f"{len(keys)} digits of keys for {chunks} chunks")
        if not all(all(along) for along in self._blocks) or len(set(self._over)) < len(self._over):
            raise ValueError("empty blocks of coordinates, or a dimension that is there twice")

    def __len__(self) -> int:
        return prod(map(len, self._blocks))

    def __iter__(self) -> Iterator[Position]:
        return (tuple(zip(self._over, place, strict=True)) for place in product(*self._blocks))

    def __getitem__(self, place: Position) -> str:
        if tuple(dim for dim, _ in place) != self._over:
            raise KeyError(place)
        number = 0
        for (_, block), numbers in zip(place, self._numbers, strict=True):
            number = number * len(numbers) + numbers[block]
        return self._keys[DIGITS * number : DIGITS * (number + 1)]

    def first(self, place: Position) -> int:
        """Number of a chunk's block along the first dimension."""
        return self._numbers[0][place[0][1]] if place else 0

    def blocks(self, axis: int) -> list[Block]:
        """The blocks of coordinates along a dimension."""
        return self._blocks[axis]

    @cached_property
    def _numbers(self) -> list[dict[Block, int]]:
        return [{block: number for number, block in enumerate(along)} for along in self._blocks]

    def in_order(self) -> Iterator[str]:
        """The keys, in the order of their coordinates."""
        return (self._keys[first : first + DIGITS] for first in range(0, len(self._keys), DIGITS))


class Rows(TypedDict):
    """Labels that are rows of numbers along a dimension, and their components along another one."""

    rows: Sequence[Sequence[float]]
    axis: str
    components: Sequence[Coordinate]


class NodeFacts(TypedDict):
    """A node in a manifest."""

    stage: str
    version: str
    parameters: Facts
    over: Sequence[str]
    chunk: Mapping[str, int]
    backend: str | None
    transient: bool
    outputs: Mapping[str, Sequence[str]]
    labels: NotRequired[Mapping[str, Sequence[Coordinate | float] | Rows]]
    long_names: NotRequired[Mapping[str, str]]
    inputs: Sequence[str]
    blocks: Sequence[Sequence[Sequence[Coordinate]]]
    """Per dimension."""
    keys: str
    """Of all chunks, in the order of their coordinates."""
    files: Mapping[str, Sequence[str]]
    """Digests by parameter, one for each block of the first dimension."""


class SourceFacts(TypedDict, total=False):
    """The file of a workflow: its path, the folder where its paths begin, and what `--set` changed in it."""

    path: str
    folder: str
    set: Sequence[str]


class ManifestFacts(TypedDict):
    """A manifest as it is written."""

    workflow: NotRequired[str]
    nodes: Mapping[str, Facts]
    about: NotRequired[Facts]
    source: NotRequired[SourceFacts]


@dataclass(frozen=True)
class NodeRecord:
    """A node as it was when its workflow was last run."""

    content: Facts
    chunks: KeyTable

    @classmethod
    def of(cls, content: Facts) -> NodeRecord:
        """The node that a manifest describes; KeyError, TypeError or ValueError where it is damaged."""
        content = expect(content if "keys" in content else _from_list(content), NodeFacts, "a node")
        stage, blocks, keys = content["stage"], content["blocks"], content["keys"]
        if "/" in stage or stage[:1] in ("", ".") or keys.strip(string.hexdigits):
            raise ValueError(f"no chunks of stage {stage!r:.80}")
        firsts = len(blocks[0]) if blocks else 1
        if any(len(digests) != firsts for digests in content["files"].values()):
            raise ValueError(f"digests of files do not fit {firsts} blocks")
        return cls(content, KeyTable(content["over"], blocks, keys))

    @property
    def stage(self) -> str:
        """Name of its stage."""
        return str(self.content["stage"])

    @property
    def chunk_ids(self) -> list[ChunkId]:
        """Stage and key of each chunk, in the order of their coordinates."""
        return [(self.stage, key) for key in self.chunks.in_order()]

    def files(self, place: Position) -> dict[str, str]:
        """Digests of the files that a chunk reads, by parameter."""
        first = self.chunks.first(place)
        return {name: digests[first] for name, digests in self.content["files"].items()}


def _from_list(content: Facts) -> Facts:
    """A node of a manifest that lists chunk by chunk, as they were written until 2026-11."""
    chunks = content["chunks"]
    places = zip(*(map(tuple, chunk["at"]) for chunk in chunks), strict=True)
    blocks = [list(dict.fromkeys(along)) for along in places]
    firsts = chunks[:: len(chunks) // len(blocks[0]) if blocks else 1]
    return {
        **{name: value for name, value in content.items() if name != "chunks"},
        "blocks": blocks,
        "keys": "".join(chunk["key"] for chunk in chunks),
        "files": {name: [chunk["files"][name] for chunk in firsts] for name in firsts[0].get("files", {})},
    }


@dataclass(frozen=True)
class Manifest:
    """The nodes of a workflow with the keys of their chunks."""

    workflow: str
    nodes: dict[str, NodeRecord]
    about: Facts
    """What all results say of themselves."""
    source: dict[str, Any] = field(default_factory=dict)
    """Path of the file that it was made of, folder where its paths begin, and what `--set` changed in it."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Values that `--set` gave instead of the file."""
        return tuple(self.source.get("set", ()))

    @property
    def path(self) -> str:
        """Path of the file; '' where a script made the workflow."""
        return str(self.source.get("path", ""))

    @property
    def file(self) -> str:
        """Path of the file with what was changed in it."""
        return f"{self.path}{options_text(self.changes)}"

    @property
    def stored(self) -> dict[str, NodeRecord]:
        """The nodes whose chunks are stored: those that are not transient."""
        return {name: node for name, node in self.nodes.items() if not node.content["transient"]}

    @classmethod
    def read(cls, store: Store, workflow: str) -> Manifest | None:
        """The last manifest of a workflow, None if it was never run or the file is damaged.

        Raises InputError where there is one that may not be read.
        """
        return cls.in_file(store.path / ".workflows" / f"{workflow}.json")

    @classmethod
    def in_file(cls, path: Path) -> Manifest | None:
        """The manifest in a file of `.workflows`; None and InputError as of `read`."""
        try:
            with without_collection():
                return cls.of(path.stem if path.name[0] != "." else "", content_of(path))
        except PermissionError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except (OSError, ValueError):
            return None

    @classmethod
    def of(cls, workflow: str, text: bytes) -> Manifest:
        """The manifest that a file holds; workflow: its name, '' for the one in the file.

        Raises:
            ValueError: it is damaged.
        """
        content = expect(json_object(text), ManifestFacts, "a manifest")
        try:
            nodes = {name: NodeRecord.of(node) for name, node in content["nodes"].items()}
        except (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
            raise ValueError(f"a list of chunks is damaged: {error}") from error
        TopologicalSorter({name: node.content["inputs"] for name, node in nodes.items()}).prepare()
        name = workflow or content.get("workflow", "")
        return cls(name, nodes, content.get("about", {}), content.get("source", {}))


def describe_node(node: Node, backend: str) -> Facts:
    """Everything about a node, without its chunks, that a later plan may be compared with."""
    stage = node.stage
    return {
        "stage": stage.name,
        "version": stage.version,
        "parameters": canonical_parameters(node),
        "over": list(stage.over),
        "chunk": node.chunk,
        "backend": stage.backend(backend) if stage.keyed.backend else None,
        "transient": stage.transient,
        "outputs": {output.name: list(output.dims) for output in stage.outputs},
        "labels": labels_of(node),
        "long_names": long_names(stage.result) if stage.outputs else {},
        "inputs": [upstream.name for upstream in node.inputs],
    }


def labels_of(node: Node) -> Facts:
    """Labels by dimension: a list of names, or of rows of numbers with the axis of the rows and its names."""
    labels: dict[str, Any] = {}
    for dim, names in node.stage.labels.items():
        if not isinstance(names, FromParameter):
            labels[dim] = names
        elif names.axis:
            rows = [list(row) for row in node.parameters[names.parameter]]
            labels[dim] = {"rows": rows, "axis": names.axis, "components": names.components}
        elif node.parameters[names.parameter]:
            labels[dim] = list(node.parameters[names.parameter])
    return labels


def describe_chunks(node: Node, chunks: Sequence[Chunk]) -> Facts:
    """Keys of all chunks as one text; digests of files, by block of the first dimension."""
    blocks = node.blocks()
    firsts = chunks[:: len(chunks) // len(blocks[0]) if blocks else 1]
    return {
        "blocks": blocks,
        "keys": "".join(chunk.key for chunk in chunks),
        "files": {name: [chunk.files[name].digest for chunk in firsts] for name in node.files},
    }

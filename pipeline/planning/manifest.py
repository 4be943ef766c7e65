"""The last plan of each workflow, `<store>/.workflows/<name>.json`.

It names chunks for people (`open_result`) and explains why a later plan differs. Nothing is decided by it:
whether a chunk exists is asked of the store alone.
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from hashlib import sha256
from itertools import groupby, product
from math import prod
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pipeline.declare.coordinates import Coordinate
from pipeline.declare.node import FromParameter, Node
from pipeline.declare.signature import long_names
from pipeline.planning.chunk import Block, Chunk, Position, without_collection
from pipeline.planning.key import canonical_parameters
from pipeline.planning.workflow import Source, file_and_changes, options_text
from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import json_object, plain, text_of
from pipeline.store.record import Facts, canonical_json
from pipeline.store.store import ChunkId, Store
from pipeline.store.typed import expect
from stages.base.errors import InputError, suggestion

DIGITS = 64
"""Of a key."""

FORMER = ".former-{}-{}.json"
"""File of a manifest that another file's replaced, by the workflow and a digest of its own file."""

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
        return cls._in(store.path / ".workflows" / f"{workflow}.json")

    @classmethod
    def _in(cls, path: Path) -> Manifest | None:
        try:
            with without_collection():
                return cls.of(path.stem if path.name[0] != "." else "", plain(path).read_bytes())
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


def manifests(store: Store) -> list[Manifest]:
    """The manifests of all workflows that were run into a store; parts of them are left out."""
    names = sorted(path.stem for path in (store.path / ".workflows").glob("[!.]*.json"))
    names = [name for name in names if not name.endswith(PART)]
    return [manifest for name in names if (manifest := Manifest.read(store, name))]


def former_manifests(store: Store) -> list[Manifest]:
    """The manifests of other files that were run as a workflow before its last one, parts left out."""
    read = map(Manifest._in, sorted((store.path / ".workflows").glob(FORMER.format("*", "*"))))
    return [manifest for manifest in read if manifest and not manifest.workflow.endswith(PART)]


def of_file(store: Store, file: str) -> list[Manifest]:
    """The manifests of a workflow file, `my.yaml`, or of one with changes, `my.yaml --set masses.light=0.1`.

    Its path as it was run, or the end of that where the store came from elsewhere.

    Raises:
        InputError: the store has none, or of several files of that name.
    """
    name, changes = file_and_changes(file)
    known = [each for each in (*manifests(store), *former_manifests(store)) if each.file]
    alike = [each for each in known if set(each.changes) == set(changes)]
    found = [each for each in alike if each.path == os.path.abspath(name)]
    found = found or [each for each in alike if each.path.endswith(f"/{name.removeprefix('./')}")]
    if len({each.file for each in found}) != 1:
        names = "\n  ".join(["", *dict.fromkeys(each.file for each in found or known)])
        if found:
            raise InputError(
                f"store {store.path} has results of several files {file}: say which by its path:{names}"
            )
        raise InputError(
            f"store {store.path} has no results of {file}; it has those of:{names or ' no file'}"
        )
    return found


def keep_former(store: Store, manifest: Manifest, text: str) -> None:
    """Keep the text of a manifest that another file's replaces. Raises OSError."""
    write_atomically(_former(store, manifest.workflow, manifest.file), text)


def drop_former(store: Store, manifest: Manifest) -> None:
    """Forget one of `former_manifests`. Raises OSError."""
    _former(store, manifest.workflow, manifest.file).unlink(missing_ok=True)


def part_of(store: Store, whole: Manifest) -> Manifest | None:
    """The manifest of averages of what was complete when a run of the same file failed."""
    name = f"{whole.workflow}{PART}"
    last = Manifest.read(store, name)
    return last if not last or last.file == whole.file else Manifest._in(_former(store, name, whole.file))


def _former(store: Store, workflow: str, file: str) -> Path:
    digest = sha256(file.encode(errors="surrogateescape")).hexdigest()[:16]
    return store.inside(".workflows", FORMER.format(workflow, digest))


def find_node(store: Store, name: str, workflow: str | None = None) -> tuple[Manifest, str]:
    """The node of that name, or the only one of that stage: its manifest, and its name there.

    workflow: its name, or a file that was run as it, see `of_file`.

    Raises:
        InputError: there is none; or there are several, and `workflow` or the node's name must say which.
    """
    known = manifests(store)
    if workflow is not None:
        last = Manifest.read(store, workflow) if "/" not in workflow else None
        is_file = not last and (" --set " in workflow or workflow.endswith((".yaml", ".yml")))
        known = of_file(store, workflow) if is_file else [last] if last else []
    stored = [(each, label, node) for each in known for label, node in each.stored.items()]
    holding = [item for item in stored if item[1] == name]
    holding = holding or [item for item in stored if item[2].stage == name]
    if not holding:
        names = {label for _, label, _ in stored}
        raise InputError(f"store {store.path} has no result named {name!r}{suggestion(name, names)}")
    if len(holding) > 1:
        places = ", ".join(sorted(f"{label} of workflow {owner.workflow}" for owner, label, _ in holding))
        raise InputError(f"{name!r} may be {places}: say which, by node name and workflow=...")
    return holding[0][:2]


def write_manifest(
    store: Store,
    workflow: str,
    backend: str,
    chunks: Iterable[Chunk],
    about: Facts,
    source: Source | None = None,
) -> None:
    """Keep this plan's nodes and keys, and its parameter file, replacing the workflow's last ones."""
    nodes = {
        node.name: {**describe_node(node, backend), **_describe_chunks(node, list(group))}
        for node, group in groupby(chunks, key=lambda chunk: chunk.node)
    }
    content = {"workflow": workflow, "nodes": nodes, **({"about": about} if about else {})}
    folder = store.inside(".workflows")
    if source:
        changes = {"set": list(source.changes)} if source.changes else {}
        content["source"] = {"path": source.path, "folder": source.folder, **changes}
        if not workflow.endswith(PART):
            _keep(store, folder / f"{workflow}.yaml", source.text)
    _put_aside(store, workflow, source.label if source else "")
    _keep(store, folder / f"{workflow}.json", canonical_json(content).decode())


def _put_aside(store: Store, workflow: str, file: str) -> None:
    """Keep the manifest of the file that was run as this workflow before, if it was another one."""
    before = Manifest.read(store, workflow)
    if before and before.file and before.file != file:
        with store.writing("the plan of its workflow"):
            keep_former(store, before, (store.inside(".workflows") / f"{workflow}.json").read_text())
    if file and (former := _former(store, workflow, file)).exists():
        with store.writing("the plan of its workflow"):
            former.unlink(missing_ok=True)


def _keep(store: Store, path: Path, text: str) -> None:
    if text_of(path) != text:
        with store.writing("the plan of its workflow"):
            write_atomically(path, text)


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


def _describe_chunks(node: Node, chunks: Sequence[Chunk]) -> Facts:
    """Keys of all chunks as one text; digests of files, by block of the first dimension."""
    blocks = node.blocks()
    firsts = chunks[:: len(chunks) // len(blocks[0]) if blocks else 1]
    return {
        "blocks": blocks,
        "keys": "".join(chunk.key for chunk in chunks),
        "files": {name: [chunk.files[name].digest for chunk in firsts] for name in node.files},
    }

"""The last plan of each workflow, `<store>/.workflows/<name>.json`.

It names chunks for people (`open_result`) and explains why a later plan differs. Nothing is decided by it:
whether a chunk exists is asked of the store alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from pipeline.declare.collection import without_collection
from pipeline.declare.node import Node
from pipeline.planning.chunk import Chunk, Position
from pipeline.planning.key import canonical_parameters
from pipeline.store.durable import write_atomically
from pipeline.store.record import canonical_json
from pipeline.store.store import Store
from stages.errors import InputError, suggestion


@dataclass(frozen=True)
class NodeRecord:
    """A node as it was when its workflow was last run."""

    content: dict[str, Any]

    @property
    def keys(self) -> Iterable[str]:
        """Keys of the chunks, in order."""
        return (chunk["key"] for chunk in self.content["chunks"])

    def __len__(self) -> int:
        return len(self.content["chunks"])

    @cached_property
    def chunks(self) -> dict[Position, dict[str, Any]]:
        """Chunks by their coordinates."""
        dims = self.content["over"]
        return {
            tuple((dim, tuple(values)) for dim, values in zip(dims, chunk["at"], strict=True)): chunk
            for chunk in self.content["chunks"]
        }


@dataclass(frozen=True)
class Manifest:
    """The nodes of a workflow with the keys of their chunks."""

    workflow: str
    nodes: dict[str, NodeRecord]

    @classmethod
    def read(cls, store: Store, workflow: str) -> Manifest | None:
        """The last manifest of a workflow, None if it was never run or the file is damaged."""
        path = store.path / ".workflows" / f"{workflow}.json"
        try:
            with without_collection():
                nodes = json.loads(path.read_bytes())["nodes"]
            for chunk in chain.from_iterable(content["chunks"] for content in nodes.values()):
                chunk["key"], chunk["at"]
            return cls(workflow, {name: NodeRecord(content) for name, content in nodes.items()})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def manifests(store: Store) -> list[Manifest]:
    """The manifests of all workflows that were run into a store."""
    names = sorted(path.stem for path in (store.path / ".workflows").glob("[!.]*.json"))
    return [manifest for name in names if (manifest := Manifest.read(store, name))]


def find_node(store: Store, name: str, workflow: str | None = None) -> tuple[str, NodeRecord]:
    """The node of that name, or the only one of that stage, with its name.

    Raises:
        InputError: there is none; or there are several, and `workflow` or the node's name must say which.
    """
    known = [each for each in manifests(store) if workflow in (None, each.workflow)]
    nodes = [(each.workflow, label, node) for each in known for label, node in each.nodes.items()]
    stored = [item for item in nodes if not item[2].content["transient"]]
    holding = [item for item in stored if item[1] == name]
    holding = holding or [item for item in stored if item[2].content["stage"] == name]
    if not holding:
        names = {label for _, label, _ in stored}
        raise InputError(f"store {store.path} has no result named {name!r}{suggestion(name, names)}")
    if len(holding) > 1:
        places = ", ".join(sorted(f"{label} of workflow {owner}" for owner, label, _ in holding))
        raise InputError(f"{name!r} may be {places}: say which, by node name and workflow=...")
    return holding[0][1:]


def write_manifest(store: Store, workflow: str, backend: str, chunks: Iterable[Chunk]) -> None:
    """Keep this plan's nodes and keys, replacing the workflow's last ones."""
    nodes: dict[str, dict[str, Any]] = {}
    with without_collection():
        for chunk in chunks:
            if chunk.node.name not in nodes:
                nodes[chunk.node.name] = describe_node(chunk.node, backend)
            nodes[chunk.node.name]["chunks"].append(_describe_chunk(chunk))
        text = canonical_json({"workflow": workflow, "nodes": nodes}).decode()
    path = store.path / ".workflows" / f"{workflow}.json"
    if not path.exists() or path.read_text() != text:
        with store.writing("the plan of its workflow"):
            write_atomically(path, text)


def describe_node(node: Node, backend: str) -> dict[str, Any]:
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
        "labels": stage.labels,
        "inputs": [upstream.name for upstream in node.inputs],
        "chunks": [],
    }


def _describe_chunk(chunk: Chunk) -> dict[str, Any]:
    files = {name: version.digest for name, version in chunk.files.items()}
    return {"at": list(chunk.coordinates.values()), "key": chunk.key, **({"files": files} if files else {})}

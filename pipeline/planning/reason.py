"""Reasons why a chunk must be computed.

Its plan is compared with the last plan of the same file, or else of the same workflow, and with what the
store holds of the same node from plans before that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from pipeline.declare.coordinates import Coordinate, describe
from pipeline.declare.node import Node
from pipeline.planning.chunk import Chunk, position
from pipeline.planning.manifest import Manifest, NodeRecord, describe_node
from pipeline.store.record import Facts


class ReasonKind(StrEnum):
    """Kinds of reasons, in the words of `plan`."""

    NEW = "new"
    EXTENDED = "extended"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"
    CHANGED_PARAMETER = "changed parameter"
    CHANGED_FILE = "changed file"
    CHANGED_VERSION = "changed version"
    CHANGED_CHUNK_SIZE = "changed chunk size"
    CHANGED_BACKEND = "changed backend"
    CHANGED_INPUTS = "changed inputs"
    UPSTREAM_CHANGED = "upstream changed"
    UPSTREAM_EXTENDED = "upstream extended"


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a chunk must be computed."""

    kind: ReasonKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


NEW = Reason(ReasonKind.NEW)
LONGEST, MOST = 60, 4
"""Characters of a parameter's value in a reason, and parameters in one."""
UNFINISHED = Reason(ReasonKind.UNFINISHED)


class Reasons:
    """Comparison of the chunks of one plan with a manifest (None: the workflow was never run).

    Args:
        absent: keys of the chunks that the store does not hold.
    """

    def __init__(
        self,
        manifest: Manifest | None,
        chunks: Mapping[str, list[Chunk]],
        backend: str,
        absent: Collection[str] = (),
    ) -> None:
        self._manifest = manifest
        self._chunks = chunks
        self._backend = backend
        self._absent = absent
        self._held: dict[str, dict[str, set[Coordinate]]] = {}
        self._changes: dict[str, Reason | None] = {}
        self._upstream: dict[str, Reason] = {}

    def of(self, chunk: Chunk) -> Reason:
        """The first reason that applies."""
        before = self._before(chunk.node)
        if before is None:
            return NEW
        place = position(chunk.coordinates)
        old = before.chunks.get(place)
        if old == chunk.key:
            return UNFINISHED
        changed = self._node_change(chunk.node, before)
        if changed is not None:
            return self._growth(chunk) if chunk.node.name in self._returned else changed
        if old is None:
            return Reason(ReasonKind.EXTENDED, describe(chunk.coordinates))
        return _changed_file(chunk, before.files(place)) or self._upstream_change(chunk.node)

    def _before(self, node: Node) -> NodeRecord | None:
        name = self._former.get(node.name, node.name)
        record = self._manifest.nodes.get(name) if self._manifest else None
        return record if record and record.stage == node.stage.name else None

    @cached_property
    def _former(self) -> dict[str, str]:
        """Names that renamed nodes had last time: with keys in common, or the only ones of their stage."""
        known = self._manifest.nodes if self._manifest else {}
        gone = {name: record for name, record in known.items() if name not in self._chunks}
        keys = {key: name for name, record in gone.items() for key in record.chunks.in_order()}
        former = {}
        for name, chunks in self._chunks.items() if gone else ():
            stage = chunks[0].node.stage.name
            alike = [old for old, record in gone.items() if record.stage == stage]
            same = [keys[chunk.key] for chunk in chunks if chunk.key in keys] or alike
            if name not in known and same and (same is not alike or len(alike) == 1):
                former[name] = same[0]
        return former

    def _node_change(self, node: Node, before: NodeRecord) -> Reason | None:
        if node.name not in self._changes:
            now = describe_node(node, self._backend)
            inputs = [self._former.get(name, name) for name in now["inputs"]]
            same_names = inputs == before.content["inputs"]
            now = {**now, "inputs": inputs} if same_names else now
            changed = _compare(before.content, now)
            if changed and changed.kind == ReasonKind.CHANGED_INPUTS:
                changed = self._changed_inputs(node, before) or changed
            self._changes[node.name] = changed
        return self._changes[node.name]

    def _changed_inputs(self, node: Node, before: NodeRecord) -> Reason | None:
        """In names of nodes that the table shows, if these tell the difference."""
        known = self._manifest.nodes if self._manifest else {}
        old = _in_table(before.content["inputs"], lambda name: known[name].content if name in known else {})
        nodes = {name: chunks[0].node for name, chunks in self._chunks.items()}
        new = _in_table(
            [each.name for each in node.inputs], lambda name: describe_node(nodes[name], self._backend)
        )
        return None if old == new else Reason(ReasonKind.CHANGED_INPUTS, f"{_listed(old)} -> {_listed(new)}")

    def _is_returned_to(self, node: Node, changed: Reason) -> bool:
        """True if some, not all, of a node's chunks are there from before it was changed and changed back.

        Where chunk sizes changed, a block that is the same in both says nothing.
        """
        chunks = self._chunks[node.name]
        stored = sum(chunk.key not in self._absent for chunk in chunks)
        return (
            changed.kind != ReasonKind.CHANGED_CHUNK_SIZE
            and not node.stage.transient
            and 0 < stored < len(chunks)
        )

    def _growth(self, chunk: Chunk) -> Reason:
        """Beyond the coordinates of the chunks that are there, or among them."""
        held = self._held_coordinates(chunk.node)
        if all(held[dim].issuperset(values) for dim, values in chunk.coordinates.items()):
            return UNFINISHED
        return Reason(ReasonKind.EXTENDED, describe(chunk.coordinates))

    def _held_coordinates(self, node: Node) -> dict[str, set[Coordinate]]:
        if node.name not in self._held:
            stored = [chunk for chunk in self._chunks[node.name] if chunk.key not in self._absent]
            self._held[node.name] = {
                dim: {value for chunk in stored for value in chunk.coordinates[dim]} for dim in node.over
            }
        return self._held[node.name]

    def _upstream_change(self, node: Node) -> Reason:
        """Names the inputs whose keys differ from last time, followed up to where the change began."""
        if node.name not in self._upstream:
            altered, grown = self._roots(node.inputs), self._growing(node.inputs)
            if not altered and grown & self._extended:
                reason = Reason(ReasonKind.UPSTREAM_EXTENDED, ", ".join(sorted(grown)))
            else:
                altered = altered or {f"{name} (fewer chunks)" for name in grown}
                reason = Reason(ReasonKind.UPSTREAM_CHANGED, ", ".join(sorted(altered)))
            self._upstream[node.name] = reason
        return self._upstream[node.name]

    def _roots(self, nodes: Iterable[Node]) -> set[str]:
        """Nodes at which a change of these began; one that no table shows with its own reason."""
        roots: set[str] = set()
        for node in nodes:
            if node.name not in self._altered:
                continue
            before = self._before(node)
            changed = NEW if before is None else self._node_change(node, before)
            above = set() if changed else self._roots(node.inputs)
            if above:
                roots |= above
            elif not node.stage.transient:
                roots.add(node.name)
            elif changed or not self._growing(node.inputs):
                roots.add(f"{node.name} ({changed})" if changed else node.name)
        return roots

    def _growing(self, nodes: Iterable[Node]) -> set[str]:
        """Nodes of a table, among these or above those that no table shows, with other coordinates."""
        return {
            name
            for node in nodes
            for name in (
                self._growing(node.inputs)
                if node.stage.transient and node.inputs
                else {node.name} & self._grown
            )
        }

    @cached_property
    def _altered(self) -> set[str]:
        """Nodes declared otherwise than last time, or with another key at the same coordinates."""
        return {
            name
            for name, chunks in self._chunks.items()
            if name not in self._returned and any(self._is_altered(chunk) for chunk in chunks)
        }

    @cached_property
    def _returned(self) -> set[str]:
        """Nodes that are as they were before the last plan, with some of their chunks."""
        changes = {
            chunks[0].node: self._node_change(chunks[0].node, before)
            for chunks in self._chunks.values()
            if (before := self._before(chunks[0].node)) is not None
        }
        return {
            node.name for node, changed in changes.items() if changed and self._is_returned_to(node, changed)
        }

    def _is_altered(self, chunk: Chunk) -> bool:
        before = self._before(chunk.node)
        if before is None or self._node_change(chunk.node, before):
            return True
        old = before.chunks.get(position(chunk.coordinates))
        return old is not None and old != chunk.key

    @cached_property
    def _grown(self) -> set[str]:
        """Nodes whose coordinates are not those of last time."""
        sizes = {
            name: len(before.chunks)
            for name, chunks in self._chunks.items()
            if (before := self._before(chunks[0].node))
        }
        return self._extended | {name for name, size in sizes.items() if len(self._chunks[name]) != size}

    @cached_property
    def _extended(self) -> set[str]:
        """Nodes with coordinates that they did not have last time."""
        added = {name for name, chunks in self._chunks.items() if any(map(self._is_added, chunks))}
        return self._returned | added

    def _is_added(self, chunk: Chunk) -> bool:
        before = self._before(chunk.node)
        return before is None or position(chunk.coordinates) not in before.chunks


def _compare(old: Facts, new: Facts) -> Reason | None:
    """The difference between two descriptions of a node that alters its keys, if there is one."""
    if old["version"] != new["version"]:
        return Reason(ReasonKind.CHANGED_VERSION, f"{old['version']} -> {new['version']}")
    parameters = _differences(old["parameters"], new["parameters"])
    if parameters:
        shown = [each for each in parameters if each in sorted(parameters, key=len)[:MOST]]
        more = [f"{len(parameters) - len(shown)} more"] if len(parameters) > len(shown) else []
        return Reason(ReasonKind.CHANGED_PARAMETER, ", ".join([*shown, *more]))
    if old["backend"] != new["backend"]:
        return Reason(ReasonKind.CHANGED_BACKEND, f"{old['backend']} -> {new['backend']}")
    sizes = _differences(old["chunk"], new["chunk"])
    if sizes:
        return Reason(ReasonKind.CHANGED_CHUNK_SIZE, ", ".join(sizes))
    if old["inputs"] != new["inputs"]:
        return Reason(ReasonKind.CHANGED_INPUTS, f"{_listed(old['inputs'])} -> {_listed(new['inputs'])}")
    return None


def _in_table(names: Iterable[str], content: Callable[[str], Facts]) -> list[str]:
    """Names of nodes of a table: for one that no table shows, those that it is made of."""
    nodes: dict[str, None] = {}
    for name in names:
        about = content(name)
        hidden = about.get("transient") and about["inputs"]
        nodes.update(dict.fromkeys(_in_table(about["inputs"], content) if hidden else [name]))
    return list(nodes)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _differences(old: Facts, new: Facts, prefix: str = "") -> list[str]:
    """`mass 0.01 -> 0.02` for each leaf that differs."""
    lines = []
    for name in sorted({*old, *new}):
        before, after = old.get(name, "(absent)"), new.get(name, "(absent)")
        if isinstance(before, dict) and isinstance(after, dict):
            lines += _differences(before, after, f"{prefix}{name}.")
        elif before != after:
            lines.append(f"{prefix}{name} {_brief(before)} -> {_brief(after)}")
    return lines


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def _changed_file(chunk: Chunk, before: Mapping[str, str]) -> Reason | None:
    changed = [version.path for name, version in chunk.files.items() if before.get(name) != version.digest]
    return Reason(ReasonKind.CHANGED_FILE, ", ".join(changed)) if changed else None

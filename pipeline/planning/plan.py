"""The plan: every chunk of a workflow with its key, which of them exist, which must run and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from statistics import fmean

from pipeline.declare.coordinates import Coordinate, Coordinates, describe_values, natural_order
from pipeline.declare.duration import duration_text
from pipeline.declare.node import Node
from pipeline.declare.text import counted, format_bytes, text_table
from pipeline.planning.chunk import NO_FILES, Chunk, without_collection
from pipeline.planning.key import key_of, node_content
from pipeline.planning.manifest_files import last_plan
from pipeline.planning.reason import Reason, ReasonKind, Reasons
from pipeline.planning.workflow import Economies, Source, Workflow
from pipeline.store.files import FileVersion, file_versions
from pipeline.store.record import Facts, Record
from pipeline.store.store import Store
from stages.base.errors import InputError

SAMPLED_RECORDS = 8

BESIDE = "not counting the start of workers and their first compilation of kernels"


@dataclass(frozen=True)
class Plan:
    """Chunks that a run would compute, and why; `everything` holds transient ones too, in order of work."""

    workflow: str
    backend: str
    everything: tuple[Chunk, ...]
    reasons: dict[str, Reason]
    expected_seconds: dict[str, float]
    """Mean seconds per chunk and node, where the store has records of that stage."""
    lacking: tuple[Chunk, ...] = ()
    """Missing chunks of which the store has something, with files that are empty or gone."""
    about: Facts = field(default_factory=dict)
    """What all results say of themselves, see `Workflow`."""
    source: Source | None = None
    """The file that the workflow was made of."""
    economies: Economies | None = None
    """What of that file could take less memory."""

    def again(self, keys: Collection[str], damaged: Collection[str] = ()) -> Plan:
        """This plan with these chunks missing, `damaged` ones among them."""
        reasons = {key: Reason(ReasonKind.DAMAGED) if key in damaged else self.reasons[key] for key in keys}
        return replace(self, reasons=reasons, lacking=())

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks that the store should hold in the end."""
        return tuple(chunk for chunk in self.everything if not chunk.node.stage.transient)

    @cached_property
    def missing(self) -> tuple[Chunk, ...]:
        """Chunks that the store does not hold, upstream before downstream."""
        return tuple(chunk for chunk in self.chunks if chunk.key in self.reasons)

    @property
    def memory(self) -> int:
        """Bytes that the largest missing task needs."""
        return max((chunk.node.cost.memory for chunk in self.missing), default=0)

    @property
    def stored(self) -> int:
        """Bytes that the missing chunks will take in the store."""
        return sum(chunk.node.cost.stored for chunk in self.missing)

    @property
    def seconds(self) -> float | None:
        """Seconds of work, one task after the other; None if some stage was never measured."""
        if any(chunk.node.name not in self.expected_seconds for chunk in self.missing):
            return None
        return sum(self.expected_seconds[chunk.node.name] for chunk in self.missing)


@without_collection()
def plan(workflow: Workflow, store: Store | str | os.PathLike[str], *, backend: str = "cpu") -> Plan:
    """Compare a workflow with a store. Reads input files only if they are new, computes nothing.

    Args:
        workflow: the nodes that are wanted.
        store: the chunks that exist, or their folder.
        backend: that of the cluster ('cpu' or 'cuda'); enters the keys of the stages that say so.

    Raises:
        InputError: missing files, parameters that cannot be part of a key, chunks that do not align.
    """
    store = Store.at(store)
    versions = _file_versions(workflow, store)
    by_node: dict[str, list[Chunk]] = {}
    tables: dict[str, _Table] = {}
    for node in workflow.nodes.values():
        content = node_content(node, node.stage.backend(backend))
        chunks = [_chunk(node, content, at, tables, versions) for at in node.chunks()]
        by_node[node.name] = chunks
        tables[node.name] = _Table(node, chunks)
    everything = tuple(chain.from_iterable(by_node.values()))
    wanted: dict[str, list[str]] = {}
    for chunk in everything:
        if not chunk.node.stage.transient:
            wanted.setdefault(chunk.node.stage.name, []).append(chunk.key)
    gaps = dict(chain.from_iterable(store.gaps(stage, keys).items() for stage, keys in wanted.items()))
    absent = [chunk for chunk in everything if chunk.key in gaps]
    file = workflow.source.label if workflow.source else ""
    manifest = last_plan(store, workflow.name, file) if absent else None
    reasons = Reasons(manifest, by_node, backend, gaps)
    return Plan(
        workflow=workflow.name,
        backend=backend,
        everything=everything,
        reasons={
            c.key: Reason(ReasonKind.DAMAGED, "files are gone") if gaps[c.key] else reasons.of(c)
            for c in absent
        },
        expected_seconds=_measured(workflow, store, by_node, gaps) if absent else {},
        lacking=tuple(c for c in absent if gaps[c.key]),
        about=workflow.about,
        source=workflow.source,
        economies=workflow.economies,
    )


class _Table:
    """Finds the chunks of a node that hold given coordinates."""

    def __init__(self, node: Node, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._dims = {
            dim: (len(along), {value: number for number, block in enumerate(along) for value in block})
            for dim, along in zip(node.over, node.blocks(), strict=True)
        }
        """Per dimension, how many blocks it has, and the number of that which holds a coordinate."""
        self._found: dict[tuple[tuple[Coordinate, ...] | None, ...], tuple[Chunk, ...]] = {}

    def holding(self, wanted: Coordinates) -> tuple[Chunk, ...]:
        """Chunks that hold `wanted`, in coordinate order; all along the dimensions that `wanted` lacks.

        The same tuple for the same coordinates of this node.
        """
        place = tuple(wanted.get(dim) for dim in self._dims)
        if place not in self._found:
            chosen = [0]
            for values, (length, block_of) in zip(place, self._dims.values(), strict=True):
                along = range(length) if values is None else sorted({block_of[value] for value in values})
                chosen = [number * length + block for number in chosen for block in along]
            self._found[place] = tuple(self._chunks[number] for number in chosen)
        return self._found[place]


def _chunk(
    node: Node,
    content: Facts,
    coordinates: Coordinates,
    tables: Mapping[str, _Table],
    versions: Mapping[Path, FileVersion],
) -> Chunk:
    inputs = tuple(tables[upstream.name].holding(coordinates) for upstream in node.inputs)
    files = NO_FILES
    if node.files:
        files = {
            name: versions[paths if isinstance(paths, Path) else paths[coordinates[node.stage.over[0]][0]]]
            for name, paths in node.files.items()
        }
    keys = [[chunk.key for chunk in chunks] for chunks in inputs]
    digests = {name: version.digest for name, version in files.items()}
    return Chunk(node, coordinates, key_of(content, coordinates, keys, digests), inputs, files)


def _file_versions(workflow: Workflow, store: Store) -> dict[Path, FileVersion]:
    paths = [
        path
        for node in workflow.nodes.values()
        for source in node.files.values()
        for path in ([source] if isinstance(source, Path) else source.values())
    ]
    return file_versions(paths, store.inside(".digests.jsonl")) if paths else {}


def _measured(
    workflow: Workflow, store: Store, chunks: Mapping[str, list[Chunk]], absent: Collection[str]
) -> dict[str, float]:
    """Mean seconds per chunk of each node: from its own chunks if some exist, else from its stage's.

    Of its stage's those of nodes of the same name come first: light quarks take longer than strange ones.
    """
    means = {}
    for node in workflow.nodes.values():
        if node.stage.transient:
            continue
        own = (chunk.key for chunk in chunks[node.name] if chunk.key not in absent)
        keys = list(islice(own, SAMPLED_RECORDS))
        keys = keys or list(islice(store.each_key(node.stage.name), SAMPLED_RECORDS))
        records = [record for key in keys if (record := _timed(store, node.stage.name, key))]
        records = [record for record in records if record.node == node.name] or records
        if records:
            means[node.name] = fmean(record.seconds for record in records)
    return means


def _timed(store: Store, stage: str, key: str) -> Record | None:
    try:
        record = Record.of(store.record(stage, key))
    except InputError:
        return None
    return record if (record.seconds or 0) > 0 else None  # a clock may have been set back


def pilot(plan: Plan, known: Collection[str], chunks: int) -> Plan:
    """The plan with its first chunks missing alone: so many of each node, and what they read.

    Nodes that reduce over chunks which are missing, as averages do, have none: what they take is little, and
    most of the work would come before them.

    Args:
        plan: of the whole run.
        known: names of stages that there are records of; their chunks are computed as inputs alone.
        chunks: of each node; as many as there are workers, so that these are as busy as they will be.
    """
    missing = {chunk.key for chunk in plan.missing}
    counts: Counter[str] = Counter()
    picked: set[str] = set()
    for chunk in plan.missing:
        node = chunk.node.name
        if chunk.node.stage.name in known or counts[node] >= chunks:
            continue
        if (above := _above(chunk, missing)) is not None:
            counts[node] += 1
            picked |= above
    return plan.again([key for key in plan.reasons if key in picked])


def _above(chunk: Chunk, missing: Collection[str]) -> set[str] | None:
    """Keys of a chunk and of the missing ones that it needs; None where those are several of one node."""
    keys: set[str] = set()
    of_node: dict[str, str] = {}
    waiting = [chunk]
    while waiting:
        each = waiting.pop()
        if each.key in missing:
            if of_node.setdefault(each.node.name, each.key) != each.key:
                return None
            keys.add(each.key)
        if each.key in missing or each.node.stage.transient:
            waiting.extend(chain(*each.inputs))
    return keys


def explain(plan: Plan) -> str:
    """The text of a plan: headline, one row per node and reason, projected memory, bytes and time."""
    chunks, missing = plan.chunks, plan.missing
    lines = [
        f"workflow {plan.workflow}: {counted(len(chunks), 'chunk')}, "
        f"{len(chunks) - len(missing)} in the store, {len(missing)} to compute"
    ]
    lines += text_table(
        ["node", "stage", "chunks", "stored", "to compute", "why"], _rows(plan), left=(0, 1, 5)
    )
    if missing:
        lines.append(_projection(plan))
    return "\n".join(lines)


def _rows(plan: Plan) -> list[list[str]]:
    rows = []
    for node, group in groupby(plan.chunks, key=lambda chunk: chunk.node):
        chunks = list(group)
        todo = [chunk for chunk in chunks if chunk.key in plan.reasons]
        counts = [str(len(chunks)), str(len(chunks) - len(todo)), str(len(todo))]
        why = _why(plan, todo) or [""]
        rows.append([node.name, node.stage.name, *counts, why[0]])
        rows += [["", "", "", "", "", reason] for reason in why[1:]]
    return rows


def _why(plan: Plan, todo: Sequence[Chunk]) -> list[str]:
    """One line per distinct reason, with its number of chunks if there are several."""
    kinds: dict[tuple[ReasonKind, str], list[Chunk]] = {}
    for chunk in todo:
        reason = plan.reasons[chunk.key]
        kinds.setdefault(
            (reason.kind, "" if reason.kind == ReasonKind.EXTENDED else reason.detail), []
        ).append(chunk)
    lines = []
    for (kind, detail), chunks in kinds.items():
        text = _added(plan, chunks) if kind == ReasonKind.EXTENDED else detail
        share = f" ({len(chunks)})" if len(kinds) > 1 else ""
        lines.append(f"{kind}: {text}{share}" if text else f"{kind}{share}")
    return lines


def _added(plan: Plan, chunks: Sequence[Chunk]) -> str:
    """`config=c,d` of the added chunks; only the dimensions along which something is absent from the rest."""
    added = {id(chunk) for chunk in chunks}
    node = chunks[0].node
    others = [chunk for chunk in plan.chunks if chunk.node is node and id(chunk) not in added]
    parts = []
    for dim in node.over:
        old = {value for chunk in others for value in chunk.coordinates[dim]}
        new = {value for chunk in chunks for value in chunk.coordinates[dim]} - old
        if new:
            parts.append(f"{dim}={describe_values(sorted(new, key=natural_order))}")
    return " ".join(parts)


def _projection(plan: Plan) -> str:
    seconds = plan.seconds
    work = "time unknown" if seconds is None else f"about {duration_text(seconds)} of work, {BESIDE}"
    task = "task" if plan.backend == "cpu" else "task without a GPU"
    return f"projected: {_size(plan.memory)} per {task}, {_size(plan.stored)} to store, {work}"


def _size(nbytes: int) -> str:
    return format_bytes(nbytes) if nbytes else "unknown size"

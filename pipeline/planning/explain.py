"""The text of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dask.utils import format_bytes

from pipeline.declare.coordinates import describe_values, natural_order
from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, text_table
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.planning.reason import ReasonKind


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


BESIDE = "not counting the start of workers and their first compilation of kernels"


def _projection(plan: Plan) -> str:
    seconds = plan.seconds
    work = "time unknown" if seconds is None else f"about {duration_text(seconds)} of work, {BESIDE}"
    return f"projected: {_size(plan.memory)} per task, {_size(plan.stored)} to store, {work}"


def _size(nbytes: int) -> str:
    return format_bytes(nbytes) if nbytes else "unknown size"

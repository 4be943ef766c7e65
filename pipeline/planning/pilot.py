"""The first chunks of a plan, which forecasts learn from where there are no records, and a run finds done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import chain

from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan


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

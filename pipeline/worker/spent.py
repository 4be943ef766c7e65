"""Facts in a chunk's record that later forecasts learn from: its parts, and what its plan expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipeline.store.provenance import plain
from pipeline.worker.evaluation import transient_inputs
from pipeline.worker.work import NodeWork, Work


def parts_of(timed: Iterable[tuple[NodeWork, float]]) -> list[dict[str, Any]]:
    """The stages that ran for a chunk, with their seconds and the passes that were expected of them."""
    return [
        {
            "node": node.name,
            "stage": node.stage.name,
            "seconds": seconds,
            "work": [
                [each.name, each.count, each.nbytes, each.counted, plain(each.alike)]
                for each in node.cost.work
            ],
        }
        for node, seconds in timed
    ]


def expected_of(work: Work) -> dict[str, int]:
    """Bytes that the plan expects of a chunk's task: on the host, on a GPU with what stays there, stored."""
    cost = work.node.cost
    held = {source.key: source.node.cost.device_memory for source in transient_inputs(work)}
    return {
        "memory": cost.memory,
        "device_memory": cost.device_memory + sum(held.values()),
        "stored": cost.stored,
    }

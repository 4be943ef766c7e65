"""The last forecast of each workflow, `<store>/.forecasts/<name>.json`, beside what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipeline.reading.account import NodeAccount
from pipeline.reading.forecast.samples import stored_size
from pipeline.reading.report import Section, Table
from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import content_of, json_object
from pipeline.store.store import Store

if TYPE_CHECKING:
    from pipeline.reading.forecast.forecast import Forecast

FORMAT = 1

QUANTITIES = {
    "seconds": "seconds",
    "joules": "joules",
    "memory": "memory",
    "device_memory": "device memory",
    "stored": "bytes stored",
}
"""Estimates of nodes that are kept, with their names in the report."""


def keep(forecast: Forecast, store: Store) -> None:
    """Write a forecast into its store, for the report of the run to come; nothing where there is no store."""
    if not store.exists():
        return
    nodes = {}
    for node in forecast.nodes:
        estimates = {name: getattr(node, name) for name in QUANTITIES}
        values = {name: estimate and estimate.value for name, estimate in estimates.items()}
        nodes[node.node] = {"chunks": node.chunks, **values}
    content = {"format": FORMAT, "time": datetime.now(UTC).isoformat(), "nodes": nodes}
    folder = store.inside(".forecasts")
    with store.writing("a forecast"):
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{forecast.workflow}.json", json.dumps(content))


def reconciled(store: Store, workflow: str, nodes: Sequence[NodeAccount]) -> list[Section]:
    """Forecast and reality of the chunks that were computed since; nothing without a forecast."""
    try:
        kept = json_object(content_of(store.inside(".forecasts") / f"{workflow}.json")) or {}
        told, since = kept["nodes"], kept["time"]
    except (OSError, ValueError, KeyError):
        return []
    later = [_since(node, since) for node in nodes if node.name in told]
    rows = [row for node in later if node.keys for row in _rows(store, node, told[node.name])]
    if not rows:
        return []
    text = (
        "What was expected of a chunk before the run, and what it took, means over chunks computed since; "
        "memory is the largest. The next forecast learns from these records."
    )
    head = ["node", "chunks", "of a chunk", "forecast", "measured", "measured / forecast"]
    return [Section("Forecast and reality", text, [Table(head, rows, digits=3)])]


def _since(node: NodeAccount, time: str) -> NodeAccount:
    """The chunks of a node that were computed after a time."""
    later = {k: r for k, r in zip(node.keys, node.records, strict=True) if r.finished > time}
    return replace(node, keys=tuple(later), records=tuple(later.values()))


def _rows(store: Store, node: NodeAccount, told: Mapping[str, Any]) -> Iterator[list[object]]:
    measured = {
        "seconds": node.seconds,
        "joules": node.joules,
        "memory": max(record.host_bytes or 0 for record in node.records) or None,
        "device_memory": max(record.device_bytes or 0 for record in node.records) or None,
        "stored": sum(stored_size(store, node.stage, key)[0] for key in node.keys),
    }
    count = len(node.keys)
    for name, label in QUANTITIES.items():
        value, expected = measured[name], told[name]
        if value is not None and expected is not None:
            if not name.endswith("memory"):
                value, expected = value / count, expected / told["chunks"]
            yield [node.name, count, label, float(expected), float(value), float(value / expected)]

"""The last forecast of each workflow, `<store>/.forecasts/<name>.json`, beside what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from pipeline.reading.account import NodeAccount
from pipeline.reading.forecast.forecast import Forecast
from pipeline.reading.forecast.samples import stored_size
from pipeline.reading.report import Section, Table
from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import json_object, plain
from pipeline.store.store import Store

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
        kept = json_object(plain(store.inside(".forecasts") / f"{workflow}.json").read_bytes()) or {}
        told, since = kept["nodes"], kept["time"]
    except (OSError, ValueError, KeyError):
        return []
    rows = [row for node in nodes if node.name in told for row in _rows(store, node, told[node.name], since)]
    if not rows:
        return []
    text = (
        "What was expected of a chunk before the run, and what it took, means over chunks computed since; "
        "memory is the largest. The next forecast learns from these records."
    )
    head = ["node", "chunks", "of a chunk", "forecast", "measured", "measured / forecast"]
    return [Section("Forecast and reality", text, [Table(head, rows, digits=3)])]


def _rows(store: Store, node: NodeAccount, told: Mapping[str, Any], since: str) -> list[list[object]]:
    pairs = [(k, r) for k, r in zip(node.keys, node.records, strict=True) if r.finished > since]
    if not pairs:
        return []
    records = [record for _, record in pairs]
    drawn = [record.joules for record in records if record.joules is not None]
    measured = {
        "seconds": fmean(record.seconds for record in records),
        "joules": fmean(drawn) if len(drawn) == len(records) else None,
        "memory": max(record.host_bytes or 0 for record in records) or None,
        "device_memory": max(record.device_bytes or 0 for record in records) or None,
        "stored": fmean(stored_size(store, node.stage, key)[0] for key, _ in pairs),
    }
    rows: list[list[object]] = []
    for name, label in QUANTITIES.items():
        value, expected = measured[name], told[name]
        if value is None or expected is None:
            continue
        if not name.endswith("memory"):
            expected /= told["chunks"]
        rows.append([node.name, len(pairs), label, float(expected), float(value), float(value / expected)])
    return rows

"""What a worker tells the driver while it works: events, through Dask's event log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipeline.store.provenance import plain
from pipeline.worker.work import Work

Send = Callable[[dict[str, Any]], None]

PROGRESS_INTERVAL = 0.5
"""Seconds between two progress events of a chunk."""


def names(work: Work) -> dict[str, Any]:
    """What identifies a chunk in every event."""
    coordinates = {dim: list(values) for dim, values in work.coordinates.items()}
    return {
        "node": work.node.name,
        "stage": work.node.stage.name,
        "key": work.key,
        "coordinates": coordinates,
    }


def throttled(send: Send, chunk: dict[str, Any]) -> Send:
    """Sends a chunk's progress reports, at most one per interval; the last one of a chunk always."""
    last = 0.0

    def listener(report: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_INTERVAL or report["done"] >= report["total"]:
            last = now
            send({**plain(report), **chunk, "event": "progress"})

    return listener


def sender(topic: str) -> Send:
    """Sends events to the driver through Dask's event log; nowhere when there is no worker."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return lambda event: None
    name = worker.address
    return lambda event: worker.log_event(topic, {**event, "time": time.time(), "worker": name})

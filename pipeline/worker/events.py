"""Events of a run: their kinds, the states of chunks, and how a worker sends them, by Dask's event log."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

from pipeline.declare.coordinates import Coordinates
from pipeline.store.provenance import plain


class ChunkState(StrEnum):
    """The end of a chunk in a run, in its events, its outcome and its closing table."""

    DONE = "done"
    """Computed and committed."""
    PRESENT = "present"
    """In the store already: somebody else committed it meanwhile."""
    FAILED = "failed"
    BLOCKED = "blocked"
    """An input failed."""
    UNFINISHED = "unfinished"
    """The run ended before."""
    ELSEWHERE = "elsewhere"
    """Another driver of the store has it in work."""


class EventKind(StrEnum):
    """Kinds of events beside the ends of chunks, whose kinds are their states."""

    RUN_STARTED = "run-started"
    CLUSTER_READY = "cluster-ready"
    STARTED = "started"
    PROGRESS = "progress"
    NOTE = "note"
    DAMAGED = "damaged"
    """A chunk was moved aside, to be computed again."""
    DISAGREED = "disagreed"
    """A check of a chunk failed: it is not committed, and its worker is replaced."""
    RETRACTED = "retracted"
    """A chunk was moved aside because its worker is not to be trusted; it is computed again."""
    REFUSED = "refused"
    """A worker has other code than the driver."""
    NOT_KEPT = "not-kept"
    WAITING = "waiting"
    """The driver says what it waits for."""
    STOPPING = "stopping"
    RUN_ENDED = "run-ended"


LOST = (ChunkState.FAILED, ChunkState.BLOCKED)
"""States in which a chunk's result is missing for those who need it."""

ENDED = (ChunkState.DONE, ChunkState.PRESENT, *LOST)
"""States in which a chunk needs nothing more of its run; kinds of the events that say so."""

OTHER_CODE = "other code on a worker"
"""Why a run was stopped whose workers would compute something else than its driver means."""

Send = Callable[[dict[str, Any]], None]

PROGRESS_INTERVAL = 0.5
"""Seconds between two progress events of a chunk."""


def chunk_identity(node: str, stage: str, key: str, coordinates: Coordinates) -> dict[str, Any]:
    """The part of every event that says which chunk it is about."""
    at = {dim: list(values) for dim, values in coordinates.items()}
    return {"node": node, "stage": stage, "key": key, "coordinates": at}


def rate_limited(send: Send, chunk: dict[str, Any]) -> Send:
    """Send a chunk's progress reports, at most one per interval; the last one of a chunk always."""
    last = 0.0

    def listener(report: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_INTERVAL or report["done"] >= report["total"]:
            last = now
            with suppress(Exception):  # news of a chunk end no chunk
                send({**plain(report), **chunk, "event": EventKind.PROGRESS})

    return listener


def is_worker() -> bool:
    """True inside a task of a worker."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def sender(topic: str) -> Send:
    """A function that sends events to the driver through Dask's event log; nowhere outside a worker."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return lambda event: None
    name = worker.address

    def send(event: dict[str, Any]) -> None:
        about = {
            "event": str(event["event"]),
            "time": time.time(),
            "worker": name,
        }
        worker.log_event(topic, sendable({**event, **about}))

    return send


def sendable(value: Any) -> Any:
    """A value that travels: bytes of file names that are no text are spelled, as they end a connection."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {sendable(name): sendable(each) for name, each in value.items()}
    return [sendable(each) for each in value] if isinstance(value, (list, tuple)) else value

"""Events of a run: what they say, the states of chunks, and how a worker sends them, by Dask's event log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from pipeline.declare.coordinates import Coordinates, Listener
from pipeline.store.provenance import as_json
from pipeline.store.record import Facts
from pipeline.store.typed import field_types, known_and_other
from stages.base.errors import InputError


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
    COMPILING = "compiling"
    """A chunk waits for kernels; `compiled` of `more`: how many it has compiled until now."""
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


@dataclass(frozen=True)
class Event:
    """An event of a run: of a chunk, of a worker, or of the run itself."""

    kind: str
    """`EventKind` or `ChunkState`; in the log of another version perhaps something else."""
    time: float = field(default_factory=time.time)
    worker: str = ""
    """Address of the worker that says it, or that it is about."""
    node: str = ""
    stage: str = ""
    key: str = ""
    coordinates: Coordinates = field(default_factory=dict)
    """Of the chunk that it is about, as are the three before."""
    message: str = ""
    """Text for people."""
    error: str = ""
    details: str = ""
    """Traceback of the error."""
    fatal: str = ""
    """Why nothing later can succeed either: the store cannot be written."""
    damaged: tuple[str, str] | None = None
    """Stage and key of the input whose damage blocked the chunk."""
    repeated: bool = False
    """Whether a part of the chunk was computed a second time, and agreed."""
    distrusted: bool = False
    """Whether a check failed: nothing that the worker holds is used any more."""
    in_doubt: bool = False
    """Whether its arithmetic is in doubt, not its memory alone."""
    place: str = ""
    """Hardware of the worker."""
    joules: float | None = None
    """Energy that the chunk took; None where nothing measures it."""
    kernels: float = 0.0
    """Seconds in which it waited for kernels that were compiled or read."""
    done: float = 0.0
    total: float = 0.0
    """Progress of the chunk, in units of its stage."""
    bytes: int = 0
    limit: int = 0
    """Bytes of a result that no worker keeps, and of all that one keeps at most."""
    run: str = ""
    workflow: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Chunks that the run is to compute, by node."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a chunk took before, by node."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a chunk was planned to take, by node."""
    dashboard: str = ""
    """Address of the dashboard: shown to the listener alone, as others may read the store."""
    reason: str = ""
    """Why the run stops."""
    stopped: str = ""
    """Why it ended before its work did."""
    more: Facts = field(default_factory=dict)
    """All else by name: values that a stage reports with its progress, what a run came to."""

    @classmethod
    def of(cls, content: Facts) -> Event:
        """The event that a line of a log is, or a message of a worker.

        Raises:
            ValueError: it lacks what its kind has, or has what all readers count on of another type.
        """
        known, more = known_and_other(content, _TYPES)
        kind = more.pop("event", None)
        needed = _NEEDED.get(kind, _TIME) if isinstance(kind, str) else {"event"}
        if not needed <= known.keys() or not _COUNTED_ON.isdisjoint(more):
            raise ValueError(f"no event: {content!r:.200}")
        if at := known.get("coordinates"):
            known["coordinates"] = {dim: tuple(values) for dim, values in at.items()}
        if "damaged" in known:
            known["damaged"] = tuple(known["damaged"])
        event = cls.__new__(cls)  # a log has many: what is not given is read from the class, which is faster
        vars(event).update({**_EMPTY, **known, "kind": kind, "more": more})
        return event

    def as_dict(self) -> dict[str, Any]:
        """The event as it is written: what is not its default, and what its kind always has."""
        always = _ALWAYS.get(self.kind, ())
        content = {**self.more, "event": str(self.kind), "time": self.time}
        for name, value in vars(self).items():
            if name in _DEFAULTS and (name in always or value != _DEFAULTS[name]):
                content[name] = value
        if self.node:
            content["coordinates"] = {dim: list(values) for dim, values in self.coordinates.items()}
        return content


_TYPES = field_types(Event, "kind", "more")
_EMPTY: dict[str, Facts] = {"coordinates": {}, "missing": {}, "seconds": {}, "memory": {}}
"""Defaults that no class has."""

_TIME = {"time"}
_CHUNK = {"time", "node", "stage", "key", "coordinates"}
_NEEDED: dict[str, set[str]] = {
    **dict.fromkeys((EventKind.STARTED, EventKind.PROGRESS, EventKind.COMPILING, *ENDED), _CHUNK),
    ChunkState.FAILED: {*_CHUNK, "error"},
}
"""What events of these kinds have."""

_COUNTED_ON = {"time", "worker", "node", "stage", "key", "coordinates", "error", "joules", "kernels"}
_COUNTED_ON |= {"done", "total", "workflow", "missing", "stopped"}
"""What has the type of its field, if it is there."""

_ALWAYS: dict[str, tuple[str, ...]] = {
    EventKind.PROGRESS: ("done", "total"),
    ChunkState.DONE: ("joules", "kernels"),
    ChunkState.FAILED: ("error",),
    EventKind.DISAGREED: ("in_doubt",),
    EventKind.RUN_STARTED: ("missing", "seconds", "memory"),
    EventKind.CLUSTER_READY: ("dashboard",),
    EventKind.RUN_ENDED: ("stopped",),
}
"""What is written though it is its default."""

_DEFAULTS: dict[str, Any] = {
    each.name: each.default_factory() if callable(each.default_factory) else each.default
    for each in fields(Event)
    if each.name not in ("kind", "time", "coordinates", "more")
}

Send = Callable[[Event], None]

PROGRESS_INTERVAL = 0.5
"""Seconds between two progress events of a chunk."""


def error_text(error: Exception) -> str:
    """The message alone for errors made for people, with its type for the others."""
    text = str(error) or "no message"
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def chunk_identity(node: str, stage: str, key: str, coordinates: Coordinates) -> dict[str, Any]:
    """The part of every event that says which chunk it is about."""
    return {"node": node, "stage": stage, "key": key, "coordinates": coordinates}


def rate_limited(send: Send, chunk: Facts) -> Listener:
    """Send a chunk's progress reports, at most one per interval; the last one of a chunk always."""
    last = 0.0

    def listener(report: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_INTERVAL or report["done"] >= report["total"]:
            last = now
            with suppress(Exception):  # news of a chunk end no chunk
                about = {**chunk, "event": EventKind.PROGRESS, "time": time.time()}
                send(Event.of({**as_json(report), **about}))

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

    def send(event: Event) -> None:
        about = {"time": time.time(), "worker": worker.address}
        worker.log_event(topic, sendable({**event.as_dict(), **about}))

    return send


def sendable(value: Any) -> Any:
    """A value that travels: bytes of file names that are no text are spelled, as they end a connection."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {sendable(name): sendable(each) for name, each in value.items()}
    return [sendable(each) for each in value] if isinstance(value, (list, tuple)) else value

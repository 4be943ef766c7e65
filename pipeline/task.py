"""What runs on a worker: get the inputs, call the stage's function, commit its result."""

from __future__ import annotations

import errno
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np

from pipeline.coordinates import At, Coordinates
from pipeline.errors import UserError
from pipeline.join import join
from pipeline.key import canonical
from pipeline.provenance import code, device, host, plain
from pipeline.resident import process_cache
from pipeline.retirement import retire_if_broken, wait_for_the_end
from pipeline.stage import Input, Stage
from pipeline.store import StoreError
from pipeline.work import Report, RunContext, Work

Send = Callable[[dict[str, Any]], None]

PROGRESS_INTERVAL = 0.5
"""Seconds between two progress events of a chunk."""

_INFRASTRUCTURE = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EREMOTEIO}


def home() -> list[Report]:
    """A task that does nothing: tasks that share a resident result depend on it, and so prefer one worker."""
    return []


def execute(
    works: Sequence[Work], context: RunContext, lost_before: frozenset[str], *upstream: Sequence[Report]
) -> list[Report]:
    """Run the chunks of one task, in order. A failure of one does not stop the others.

    Args:
        lost_before: keys of chunks that failed in an earlier pass of the run.
        upstream: what the tasks that this one waited for returned.
    """
    wait_for_the_end()
    send = _sender(context.topic)
    lost = {*lost_before, *(r.key for r in chain(*upstream) if r.state in ("failed", "blocked"))}
    results = _Results(context, works, send)
    reports = []
    for work in works:
        report = _run(work, results, lost, send)
        if report.state in ("failed", "blocked"):
            lost.add(work.key)
        send({"event": report.state, **_names(work), **_outcome(report)})
        reports.append(replace(report, details=""))
    return reports


def _run(work: Work, results: _Results, lost: set[str], send: Send) -> Report:
    if results.context.store.has(work.node.stage.name, work.key):
        return Report(work.key, "present")
    if any(needed in lost for needed in _stored_inputs(work)):
        return Report(work.key, "blocked", "an input failed")
    send({"event": "started", **_names(work)})
    try:
        committed = results.compute_and_commit(work)
        return Report(work.key, "done" if committed else "present")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _INFRASTRUCTURE:
            raise
        retire_if_broken(work.node.backend)
        return Report(
            work.key, "failed", _message(error), traceback.format_exc(), isinstance(error, StoreError)
        )


def _stored_inputs(work: Work) -> Iterator[str]:
    """Keys of all chunks that are read from the store, those of transient inputs among them."""
    for source in chain(*(work.inputs or ())):
        if source.inputs is None:
            yield source.key
        else:
            yield from _stored_inputs(source)


class _Results:
    """Results by chunk, for the length of one task: transient ones shared, resident ones kept longer."""

    def __init__(self, context: RunContext, works: Sequence[Work], send: Send) -> None:
        self.context = context
        self._send = send
        self._resident = process_cache(context.resident_bytes, context.backend)
        self._uses = _uses(works)
        self._shared: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._statistics: dict[str, dict[str, Any]] = {}

    def compute_and_commit(self, work: Work) -> bool:
        started = time.time()
        stage = work.node.stage
        result, statistics = self._call(work)
        arrays = _host_arrays(stage, result, work.coordinates)
        record = _record(work, self.context, statistics, started)
        record["transient"] = [
            self._statistics[s.key] for s in _transient_inputs(work) if s.key in self._statistics
        ]
        dims = {output.name: output.dims for output in stage.outputs}
        committed = self.context.store.commit(stage.name, work.key, arrays, dims, record)
        if stage.resident:
            self._resident.get(f"{work.key}-cpu", lambda: (stage.result(**arrays), {}))
        return committed

    def get(self, work: Work) -> Any:
        """The result of an input: kept, shared, computed or loaded."""
        if work.node.stage.resident:
            result, statistics = self._resident.get(work.held_as, lambda: self._make(work))
        elif work.inputs is None:
            result, statistics = self._make(work)
        else:
            result, statistics = self._share(work)
        if statistics:
            self._statistics[work.key] = {**_names(work), "statistics": plain(statistics)}
        return result

    def _share(self, work: Work) -> tuple[Any, dict[str, Any]]:
        """A transient result, made for its first use in this task and dropped after its last."""
        name = work.held_as
        if name not in self._shared:
            self._shared[name] = self._make(work)
        self._uses[name] -= 1
        return self._shared[name] if self._uses[name] > 0 else self._shared.pop(name)

    def _make(self, work: Work) -> tuple[Any, dict[str, Any]]:
        stage = work.node.stage
        if work.inputs is not None:
            return self._call(work)
        return stage.result(**self.context.store.load(stage.name, work.key)), {}

    def _call(self, work: Work) -> tuple[Any, dict[str, Any]]:
        """The stage's function on its inputs: result and recorded statistics."""
        stage = work.node.stage
        at = At(work.coordinates, backend=work.node.backend, listener=_throttled(self._send, _names(work)))
        files = {name: version.check() for name, version in work.files.items()}
        arguments = [self._argument(*pair, at) for pair in _arguments(stage, work)]
        services = {"at": at} if stage.takes_at else {}
        return stage.function(*arguments, **services, **work.node.parameters, **files), at.statistics

    def _argument(self, argument: Input, sources: Sequence[Work], at: At) -> Any:
        if argument.reduces:
            return _LazyChunks(self, sources, at)
        pieces = [(source.coordinates, self.get(source)) for source in sources]
        return _joined(sources[0].node.stage, dict(at), pieces)


class _LazyChunks:
    """The chunks of an input that is reduced over; each is loaded when its turn comes."""

    def __init__(self, results: _Results, sources: Sequence[Work], at: At) -> None:
        self._results = results
        self._sources = sources
        self._at = at

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[tuple[At, Any]]:
        for source in self._sources:
            wanted = {dim: _within(values, self._at, dim) for dim, values in source.coordinates.items()}
            result = _joined(source.node.stage, wanted, [(source.coordinates, self._results.get(source))])
            yield At(wanted, backend=self._at.backend), result


def _within(values: tuple[Any, ...], at: At, dim: str) -> tuple[Any, ...]:
    return tuple(value for value in values if value in at[dim]) if dim in at else values


def _joined(stage: Stage, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]) -> Any:
    """One result at the wanted coordinates; the very object if there is nothing to join or cut."""
    if len(pieces) == 1 and all(wanted.get(dim, held) == held for dim, held in pieces[0][0].items()):
        return pieces[0][1]
    return stage.result(**join(stage.outputs, wanted, pieces))


def _arguments(stage: Stage, work: Work) -> Iterator[tuple[Input, tuple[Work, ...]]]:
    for position, sources in enumerate(work.inputs or ()):
        yield stage.inputs[min(position, len(stage.inputs) - 1)], sources


def _transient_inputs(work: Work) -> Iterator[Work]:
    for source in chain(*(work.inputs or ())):
        if source.inputs is not None:
            yield source
            yield from _transient_inputs(source)


def _uses(works: Sequence[Work]) -> Counter[str]:
    """How often each transient result is asked for in one task, if each is made once."""
    uses: Counter[str] = Counter()
    makers = list(works)
    while makers:
        for source in chain(*(makers.pop().inputs or ())):
            if source.inputs is not None:
                uses[source.held_as] += 1
                if uses[source.held_as] == 1:
                    makers.append(source)
    return uses


def _host_arrays(stage: Stage, result: Any, coordinates: Coordinates) -> dict[str, np.ndarray]:
    """The result's arrays in host memory, checked against the declaration."""
    if type(result) is not stage.result:
        raise UserError(
            f"stage {stage.name} must return {stage.result.__name__}, it returned {type(result).__name__}"
        )
    arrays = {}
    for output, value in zip(stage.outputs, result, strict=True):
        array = np.asarray(value.get() if hasattr(value, "get") else value)
        expected = [len(coordinates[dim]) if dim in coordinates else None for dim in output.dims]
        fits = array.ndim == len(expected) and all(
            n in (None, length) for n, length in zip(expected, array.shape, strict=True)
        )
        if not fits or array.dtype.kind not in "biufc":
            shape = ", ".join(f"{dim}={n or '?'}" for dim, n in zip(output.dims, expected, strict=True))
            raise UserError(
                f"output {output.name!r} of stage {stage.name} must be a numeric array with ({shape}), "
                f"got shape {array.shape} of {array.dtype}"
            )
        arrays[output.name] = array
    return arrays


def _record(work: Work, context: RunContext, statistics: dict[str, Any], started: float) -> dict[str, Any]:
    """The attributes of a chunk: where every number comes from."""
    node, stage, finished = work.node, work.node.stage, time.time()
    return {
        "stage": stage.name,
        "version": stage.version,
        "node": node.name,
        "coordinates": {dim: list(values) for dim, values in work.coordinates.items()},
        "parameters": canonical(node.parameters, node.name),
        "chunk": node.chunk,
        "inputs": [[source.key for source in sources] for sources in work.inputs or ()],
        "files": {name: {"path": v.path, "sha256": v.digest} for name, v in work.files.items()},
        "backend": node.backend,
        "device": device(node.backend),
        "statistics": plain(statistics),
        "seconds": finished - started,
        "finished": datetime.fromtimestamp(finished, UTC).isoformat(),
        "host": host(),
        "run": context.run,
        "code": code(),
    }


def _names(work: Work) -> dict[str, Any]:
    coordinates = {dim: list(values) for dim, values in work.coordinates.items()}
    return {
        "node": work.node.name,
        "stage": work.node.stage.name,
        "key": work.key,
        "coordinates": coordinates,
    }


def _outcome(report: Report) -> dict[str, Any]:
    given = {"error": report.error, "details": report.details, "fatal": report.fatal}
    return {name: value for name, value in given.items() if value}


def _message(error: Exception) -> str:
    """The message alone for errors made for people, with its type for the others."""
    text = str(error) or "no message"
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def _throttled(send: Send, names: dict[str, Any]) -> Send:
    """Sends a chunk's progress reports, at most one per interval; the last one of a chunk always."""
    last = 0.0

    def listener(report: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_INTERVAL or report["done"] >= report["total"]:
            last = now
            send({"event": "progress", **names, **plain(report)})

    return listener


def _sender(topic: str) -> Send:
    """Sends events to the driver through Dask's event log; nowhere when there is no worker."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return lambda event: None
    name = worker.address
    return lambda event: worker.log_event(topic, {"time": time.time(), "worker": name, **event})

"""Tasks on a worker: each chunk of a task is computed and committed, whatever becomes of the others."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from pipeline.declare.coordinates import Coordinates, describe
from pipeline.declare.node import Stage
from pipeline.declare.parameter import flattened
from pipeline.planning.key import canonical
from pipeline.store.errors import DamagedChunkError, StoreError
from pipeline.store.provenance import code, device, host, place, plain
from pipeline.store.store import Store
from pipeline.worker.certificate import certification
from pipeline.worker.checks import compare_results, forget_sums, result_sums
from pipeline.worker.code_check import OtherCodeError, check_sources, refusal
from pipeline.worker.energy import energy_meter
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.events import LOST, ChunkState, EventKind, Send, is_worker, sender
from pipeline.worker.gpu_counters import joules_of, watch
from pipeline.worker.lifetime import block_if_leaving, lost_gpu, retire, retire_if_broken
from pipeline.worker.memory import HostPeak, device_pool, trim_heap
from pipeline.worker.resident import drop_all
from pipeline.worker.spent import EXPECTED, expected_of, kernel_seconds, kernels_of, parts_of
from pipeline.worker.stopwatch import PROCESS, first_in_process
from pipeline.worker.work import ChunkOutcome, RunContext, Work
from stages.base.errors import DisagreementError, InputError, WrongResultError
from stages.base.gpus import GPUS_PER_WORKER, gpus_per_worker, visible_gpus

T = TypeVar("T")

NOT_TRUSTED = "its worker is not to be trusted any more"

_INFRASTRUCTURE = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EREMOTEIO}


class PassingError(Exception):
    """Error of a chunk by the infrastructure, of a kind that may pass."""


def affinity_anchor() -> list[ChunkOutcome]:
    """A task that does nothing: tasks that share a resident result depend on it, and so prefer one worker."""
    return []


def execute(
    works: Sequence[Work], context: RunContext, lost_before: frozenset[str], *upstream: Sequence[ChunkOutcome]
) -> list[ChunkOutcome]:
    """Run the chunks of one task, in order. A failure of one does not stop the others.

    Args:
        works: the chunks, in the order in which they are computed.
        context: what all tasks of the run share.
        lost_before: keys of chunks that failed in an earlier pass of the run.
        upstream: what the tasks that this one waited for returned.
    """
    block_if_leaving()
    send = sender(context.topic)
    try:
        _check_code(works, context)
    except OtherCodeError as error:
        return [_refused(work, error, send) for work in works]
    distrusted = False
    lost = {*lost_before, *(r.key for r in chain(*upstream) if r.state in LOST)}
    evaluation = Evaluation(works, context, send)
    outcomes = []
    for work in works:
        if distrusted:
            outcome = ChunkOutcome(work.key, ChunkState.BLOCKED, NOT_TRUSTED, distrusted=True)
        elif context.store.has(work.node.stage.name, work.key):
            outcome = ChunkOutcome(work.key, ChunkState.PRESENT)
        elif work.key in lost:  # it failed with its worker: the driver has said so
            outcomes.append(ChunkOutcome(work.key, ChunkState.FAILED))
            continue
        elif lost.intersection(source.key for source in work.stored()):
            outcome = ChunkOutcome(work.key, ChunkState.BLOCKED, "an input failed")
        else:
            send({"event": EventKind.STARTED, **work.identity})
            outcome = _run(work, evaluation, context, send)
            _measured(work, send, "memory", trim_heap)
        distrusted = outcome.distrusted
        if outcome.state in LOST:
            lost.add(work.key)
        spent = {"joules": outcome.joules, "kernels": outcome.kernels}
        taken = spent if outcome.state == ChunkState.DONE else {}
        send({"event": outcome.state, **work.identity, **taken, **_failure(outcome)})
        outcomes.append(replace(outcome, details=""))
    if distrusted:
        _quarantine()
    return outcomes


def _run(work: Work, evaluation: Evaluation, context: RunContext, send: Send) -> ChunkOutcome:
    """Exceptions of the stage go into the outcome; PassingError is raised for those of the infrastructure."""
    try:
        committed, record = _compute_and_commit(work, evaluation, context, send)
        state = ChunkState.DONE if committed else ChunkState.PRESENT
        kernels = _measured(work, send, "time", lambda: kernel_seconds(record), 0.0)
        repeated = record["checks"]["repeated"]
        return ChunkOutcome(work.key, state, joules=record["joules"], kernels=kernels, repeated=repeated)
    except DisagreementError as error:  # the driver has it computed again, by another process
        in_doubt = isinstance(error, WrongResultError)
        text = f"{work.node.name} {describe(work.coordinates)}: {error}; its worker is replaced"
        about = {"error": str(error), "message": text, "in_doubt": in_doubt}
        send({"event": EventKind.DISAGREED, **work.identity, **about, "place": place(work.node.backend)})
        return ChunkOutcome(work.key, ChunkState.BLOCKED, str(error), distrusted=True)
    except OtherCodeError as error:
        return _refused(work, error, send)
    except DamagedChunkError as error:  # the driver moves it aside, and both are computed again
        return ChunkOutcome(work.key, ChunkState.BLOCKED, str(error), damaged=(error.stage, error.key))
    except Exception as error:
        fatal, lost = _fatal(error), lost_gpu(error)
        if lost and is_worker():
            retire()
        if not fatal and (lost or _is_of_the_infrastructure(error)):
            text = f"{_message(error)} (an error that may pass)"
            send({"event": EventKind.NOTE, **work.identity, "message": text})
            raise PassingError(_message(error)) from None
        retire_if_broken(work.node.backend)
        return ChunkOutcome(work.key, ChunkState.FAILED, _message(error), traceback.format_exc(), fatal)


def _refused(work: Work, error: OtherCodeError, send: Send) -> ChunkOutcome:
    """Tell the driver that this process has other code, which ends the run."""
    send({"event": EventKind.REFUSED, "error": str(error)})
    return ChunkOutcome(work.key, ChunkState.BLOCKED, str(error))


def _quarantine() -> None:
    """Let nothing of this process be used again; a worker ends, and another process takes its place."""
    drop_all()
    forget_sums()
    if is_worker():
        retire()


def _fatal(error: Exception) -> str:
    return "an error of the store" if isinstance(error, StoreError) else ""


def _check_code(works: Sequence[Work], context: RunContext) -> None:
    """Raise OtherCodeError unless this process has the driver's code."""
    for node in (work.node for work in works):
        ours, theirs = node.stage.version, node.version
        if ours != theirs:
            raise refusal(f"stage {node.stage.name} has version {ours!r} there and {theirs!r} in the driver")
    check_sources(context)


def _check_gpus(work: Work, context: RunContext) -> None:
    """Raise InputError where this process has fewer GPUs than it was told, or than the plan was made for."""
    if work.node.backend != "cuda" or max(gpus_per_worker(), context.gpus_per_worker) == 1:
        return
    gpus, wanted = len(visible_gpus()), context.gpus_per_worker
    if gpus < wanted:
        raise InputError(
            f"the plan is for {wanted} GPUs per worker, but this worker was started with {gpus}: export "
            f"{GPUS_PER_WORKER}={wanted} where it is started"
        )


def _measured(work: Work, send: Send, what: str, ask: Callable[[], T], otherwise: Any = None) -> T | Any:
    """Measure what a chunk takes; a failure of that ends no chunk, and is told once by each process."""
    try:
        return ask()
    except Exception as error:
        if first_in_process(f"failure of {what}"):
            text = f"{what} of chunks cannot be measured on {host()} ({_message(error)}); the run goes on"
            send({"event": EventKind.NOTE, **work.identity, "message": text})
        return otherwise


def _compute_and_commit(
    work: Work, evaluation: Evaluation, context: RunContext, send: Send
) -> tuple[bool, dict[str, Any]]:
    """Whether this chunk was not there yet, and its record."""
    _check_gpus(work, context)
    measured, backend = partial(_measured, work, send), work.node.backend
    checksum, called = context.checks.checksum, time.perf_counter()
    watching, peak, stage = measured("GPUs", lambda: watch(backend)), device_pool(backend), work.node.stage
    meter = None if watching else measured("energy", lambda: energy_meter(backend))
    started, cpu, joules = time.time(), time.process_time(), measured("energy", meter) if meter else None
    host_peak = measured("memory", HostPeak)
    opening = time.perf_counter() - called if first_in_process(backend) else None
    measured("time", evaluation.stopwatch.take)
    if peak:
        measured("memory", peak.restart)
    with closing(evaluation.checkpoint(work)) as checkpoint:
        result, statistics = evaluation.compute(work, checkpoint)
        sums = result_sums(result, checksum, evaluation.effort)
        check_sources(context)  # what was loaded on the way may have been edited since
        arrays = host_arrays(stage, result, work.coordinates)
        record = record_of(work, context, statistics, started)
        record["gpus"] = gpus = (
            measured("GPUs", lambda: watching.facts(peak.each), []) if watching and peak else []
        )
        drawn = measured("energy", meter) if meter and joules is not None else None
        record["joules"] = joules_of(gpus) if drawn is None else drawn - joules
        record["device_bytes"] = peak.bytes if peak else None
        record["cpu_seconds"] = time.process_time() - cpu
        record["host_bytes"] = measured("memory", host_peak.bytes) if host_peak else None
        laps, outside = measured("time", evaluation.stopwatch.take, ([], {}))
        record["parts"] = measured("time", lambda: parts_of(laps), [])
        record["loading_seconds"] = evaluation.loading
        kept = measured("memory", lambda: evaluation.resident_bytes(backend))
        record["resident"] = kept or {"bytes": 0, "limit": 0}
        record["expected"] = measured("memory", lambda: expected_of(work)) or dict.fromkeys(EXPECTED, 0)
        record["worker"] = {"process": PROCESS, "opening": opening, "kernels": kernels_of(outside)}
        record["transient"] = transient = evaluation.transient_statistics(work)
        repeated = "repeated" in statistics or any("repeated" in each["statistics"] for each in transient)
        compare_results(stage.name, arrays, sums, checksum, evaluation.effort)
        record["checks"] = {"repeated": repeated, **asdict(evaluation.effort)}
        committed = _commit(work, context.store, arrays, record)
        checkpoint.remove()
    evaluation.keep(work, stage.result(**arrays))
    return committed, record


def _commit(work: Work, store: Store, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> bool:
    stage = work.node.stage
    dims = {output.name: output.dims for output in stage.outputs}
    pieces = {output.name: output.pieces for output in stage.outputs}
    return store.commit(stage.name, work.key, arrays, dims, record, pieces)


def _is_of_the_infrastructure(error: BaseException) -> bool:
    """True if an error, or the one that it was raised from, is a file system's that may answer next time."""
    if isinstance(error, OSError) and error.errno in _INFRASTRUCTURE:
        return True
    return error.__cause__ is not None and _is_of_the_infrastructure(error.__cause__)


def _failure(outcome: ChunkOutcome) -> dict[str, Any]:
    about: dict[str, Any] = {"error": outcome.error, "details": outcome.details, "fatal": outcome.fatal}
    about["damaged"] = outcome.damaged and list(outcome.damaged)
    about |= {"repeated": outcome.repeated, "distrusted": outcome.distrusted}
    return {name: value for name, value in about.items() if value}


def _message(error: Exception) -> str:
    """The message alone for errors made for people, with its type for the others."""
    text = str(error) or "no message"
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def host_arrays(stage: Stage, result: Any, coordinates: Coordinates) -> dict[str, np.ndarray]:
    """The result's arrays in host memory, checked against the declaration."""
    if type(result) is not stage.result:
        raise InputError(
            f"stage {stage.name} must return {stage.result.__name__}, it returned {type(result).__name__}"
        )
    arrays = {}
    fixed = {dim: names for dim, names in stage.labels.items() if isinstance(names, tuple)}
    known = {**fixed, **coordinates}
    for output, value in zip(stage.outputs, result, strict=True):
        array = np.asarray(value.get() if hasattr(value, "get") else value)
        expected = [len(known[dim]) if dim in known else None for dim in output.dims]
        fits = array.ndim == len(expected) and all(
            n in (None, length) for n, length in zip(expected, array.shape, strict=True)
        )
        if not fits or array.dtype.kind not in "biufc":
            shape = ", ".join(f"{dim}={n or '?'}" for dim, n in zip(output.dims, expected, strict=True))
            raise InputError(
                f"output {output.name!r} of stage {stage.name} must be a numeric array with ({shape}), "
                f"got shape {array.shape} of {array.dtype}"
            )
        arrays[output.name] = array
    return arrays


def record_of(work: Work, context: RunContext, statistics: dict[str, Any], started: float) -> dict[str, Any]:
    """The attributes of a chunk: where every number comes from."""
    node, stage, finished = work.node, work.node.stage, time.time()
    return {
        "stage": stage.name,
        "version": stage.version,
        "node": node.name,
        "coordinates": {dim: list(values) for dim, values in work.coordinates.items()},
        "parameters": canonical(flattened(stage.parameters, node.parameters), node.name),
        "chunk": node.chunk,
        "inputs": [[source.key for source in sources] for sources in work.inputs or ()],
        "files": {name: {"path": v.path, "sha256": v.digest} for name, v in work.files.items()},
        "backend": node.backend,
        "device": device(node.backend),
        **certification(node.backend),
        "statistics": plain(statistics),
        "seconds": finished - started,
        "finished": datetime.fromtimestamp(finished, UTC).isoformat(),
        "host": host(),
        "run": context.run,
        "code": {**code(), "sources": context.sources.digest},
    }

"""Tasks on a worker: each chunk of a task is computed and committed, whatever becomes of the others."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from itertools import chain

import numpy as np

from pipeline.declare.coordinates import Coordinates, describe
from pipeline.declare.node import Stage
from pipeline.store.errors import DamagedChunkError, StoreError
from pipeline.store.provenance import place
from pipeline.store.record import Record
from pipeline.worker.checks import compare_results, forget_sums, result_sums
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.events import LOST, ChunkState, Event, EventKind, Send, error_text, is_worker, sender
from pipeline.worker.joining import Result
from pipeline.worker.lifetime import block_if_leaving, lost_gpu, retire, retire_if_broken
from pipeline.worker.memory import trim_heap
from pipeline.worker.record import Meters, kernel_seconds, measured
from pipeline.worker.resident import drop_all
from pipeline.worker.sources import OtherCodeError, refusal
from pipeline.worker.work import RunContext, Work
from stages.base.compilation import telling
from stages.base.errors import DisagreementError, InputError, WrongResultError
from stages.base.gpus import GPUS_PER_WORKER, gpus_per_worker, visible_gpus

NOT_TRUSTED = "its worker is not to be trusted any more"

_INFRASTRUCTURE = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EREMOTEIO}


class PassingError(Exception):
    """Error of a chunk by the infrastructure, of a kind that may pass."""


def affinity_anchor() -> list[Event]:
    """A task that does nothing: tasks that share a resident result depend on it, and so prefer one worker."""
    return []


def execute(
    works: Sequence[Work], context: RunContext, lost_before: frozenset[str], *upstream: Sequence[Event]
) -> list[Event]:
    """Run the chunks of one task, in order, and return their ends. A failure of one does not stop the others.

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
    lost = {*lost_before, *(end.key for end in chain(*upstream) if end.kind in LOST)}
    evaluation = Evaluation(works, context, send)
    ends = []
    for work in works:
        if distrusted:
            end = work.event(ChunkState.BLOCKED, error=NOT_TRUSTED, distrusted=True)
        elif context.store.has(work.node.stage.name, work.key):
            end = work.event(ChunkState.PRESENT)
        elif work.key in lost:  # it failed with its worker: the driver has said so
            ends.append(work.event(ChunkState.FAILED))
            continue
        elif lost.intersection(source.key for source in work.stored()):
            end = work.event(ChunkState.BLOCKED, error="an input failed")
        else:
            send(work.event(EventKind.STARTED))
            end = _run(work, evaluation, context, send)
            measured(work, send, "memory", trim_heap)
        distrusted = end.distrusted
        if end.kind in LOST:
            lost.add(work.key)
        send(end)
        ends.append(replace(end, details=""))
    if distrusted:
        _quarantine()
    return ends


def _run(work: Work, evaluation: Evaluation, context: RunContext, send: Send) -> Event:
    """Exceptions of the stage go into the event; PassingError is raised for those of the infrastructure."""
    try:
        committed, record = _compute_and_commit(work, evaluation, context, send)
        repeated = record.checks["repeated"]
        if not committed:
            return work.event(ChunkState.PRESENT, repeated=repeated)
        kernels = measured(work, send, "time", lambda: kernel_seconds(record)) or 0.0
        return work.event(ChunkState.DONE, joules=record.joules, kernels=kernels, repeated=repeated)
    except DisagreementError as error:  # the driver has it computed again, by another process
        in_doubt = isinstance(error, WrongResultError)
        text = f"{work.node.name} {describe(work.coordinates)}: {error}; its worker is replaced"
        where = place(work.node.backend)
        about = {"error": str(error), "message": text, "in_doubt": in_doubt, "place": where}
        send(work.event(EventKind.DISAGREED, **about))
        return work.event(ChunkState.BLOCKED, error=str(error), distrusted=True)
    except OtherCodeError as error:
        return _refused(work, error, send)
    except DamagedChunkError as error:  # the driver moves it aside, and both are computed again
        return work.event(ChunkState.BLOCKED, error=str(error), damaged=(error.stage, error.key))
    except Exception as error:
        fatal, lost = _fatal(error), lost_gpu(error)
        if lost and is_worker():
            retire()
        if not fatal and (lost or _is_of_the_infrastructure(error)):
            text = f"{error_text(error)} (an error that may pass)"
            send(work.event(EventKind.NOTE, message=text))
            raise PassingError(error_text(error)) from None
        retire_if_broken(work.node.backend)
        details = traceback.format_exc()
        return work.event(ChunkState.FAILED, error=error_text(error), details=details, fatal=fatal)


def _refused(work: Work, error: OtherCodeError, send: Send) -> Event:
    """Tell the driver that this process has other code, which ends the run."""
    send(Event(EventKind.REFUSED, error=str(error)))
    return work.event(ChunkState.BLOCKED, error=str(error))


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
    context.sources.check()


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


def _compute_and_commit(
    work: Work, evaluation: Evaluation, context: RunContext, send: Send
) -> tuple[bool, Record]:
    """Whether this chunk was not there yet, and its record."""
    _check_gpus(work, context)
    stage, checksum = work.node.stage, context.checks.checksum
    dims = {output.name: output.dims for output in stage.outputs}
    pieces = {output.name: output.pieces for output in stage.outputs}
    meters = Meters(work, send, evaluation)

    def tell_of_kernels(compiled: int) -> None:
        with suppress(Exception):  # news of a chunk end no chunk
            send(work.event(EventKind.COMPILING, more={"compiled": compiled}))

    with closing(evaluation.checkpoint(work)) as checkpoint, telling(tell_of_kernels):
        result, statistics = evaluation.compute(work, checkpoint)
        sums = result_sums(result, checksum, evaluation.effort)
        context.sources.check()  # what was loaded on the way may have been edited since
        arrays = host_arrays(stage, result, work.coordinates)
        record = meters.record(context, statistics)
        compare_results(stage.name, arrays, sums, checksum, evaluation.effort)
        repeated = any("repeated" in each for each in record.all_statistics())
        record = replace(record, checks={"repeated": repeated, **asdict(evaluation.effort)})
        committed = context.store.commit(stage.name, work.key, arrays, dims, record.as_dict(), pieces)
        checkpoint.remove()
    evaluation.keep(work, stage.result(**arrays))
    return committed, record


def _is_of_the_infrastructure(error: BaseException) -> bool:
    """True if an error, or the one that it was raised from, is a file system's that may answer next time."""
    if isinstance(error, OSError) and error.errno in _INFRASTRUCTURE:
        return True
    return error.__cause__ is not None and _is_of_the_infrastructure(error.__cause__)


def host_arrays(stage: Stage, result: Result, coordinates: Coordinates) -> dict[str, np.ndarray]:
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

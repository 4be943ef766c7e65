"""What runs on a worker: each chunk of a task is computed and committed, whatever becomes of the others."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from pipeline.store.store import Store, StoreError
from pipeline.worker.chunk_record import host_arrays, record_of
from pipeline.worker.device_memory import device_pool
from pipeline.worker.energy import energy_meter
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.host_memory import give_back
from pipeline.worker.retirement import retire_if_broken, wait_for_the_end
from pipeline.worker.telling import names, sender
from pipeline.worker.work import Report, RunContext, Work
from quarkline.errors import InputError

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
    send = sender(context.topic)
    lost = {*lost_before, *(r.key for r in chain(*upstream) if r.state in ("failed", "blocked"))}
    evaluation = Evaluation(works, context, send)
    reports = []
    for work in works:
        if context.store.has(work.node.stage.name, work.key):
            report = Report(work.key, "present")
        elif lost.intersection(_stored_inputs(work)):
            report = Report(work.key, "blocked", "an input failed")
        else:
            send({"event": "started", **names(work)})
            report = _run(work, evaluation, context)
            give_back()
        if report.state in ("failed", "blocked"):
            lost.add(work.key)
        send({"event": report.state, **names(work), **_outcome(report)})
        reports.append(replace(report, details=""))
    return reports


def _run(work: Work, evaluation: Evaluation, context: RunContext) -> Report:
    """Exceptions of the stage go into the report; faults of the infrastructure are Dask's to retry."""
    try:
        return Report(work.key, "done" if _compute_and_commit(work, evaluation, context) else "present")
    except Exception as error:
        fatal = isinstance(error, StoreError)
        if not fatal and _is_of_the_infrastructure(error):
            raise
        retire_if_broken(work.node.backend)
        return Report(work.key, "failed", _message(error), traceback.format_exc(), fatal)


def _compute_and_commit(work: Work, evaluation: Evaluation, context: RunContext) -> bool:
    meter, peak, stage = energy_meter(work.node.backend), device_pool(work.node.backend), work.node.stage
    started, joules = time.time(), meter() if meter else 0.0
    if peak:
        peak.restart()
    with closing(evaluation.checkpoint(work)) as checkpoint:
        result, statistics = evaluation.compute(work, checkpoint)
        arrays = host_arrays(stage, result, work.coordinates)
        record = record_of(work, context.run, statistics, started)
        record["joules"] = meter() - joules if meter else None
        record["device_bytes"] = peak.bytes if peak else None
        record["transient"] = evaluation.recorded_on_the_way(work)
        committed = _commit(work, context.store, arrays, record)
        checkpoint.remove()
    evaluation.keep(work, stage.result(**arrays))
    return committed


def _commit(work: Work, store: Store, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> bool:
    stage = work.node.stage
    dims = {output.name: output.dims for output in stage.outputs}
    pieces = {output.name: output.pieces for output in stage.outputs}
    return store.commit(stage.name, work.key, arrays, dims, record, pieces)


def _is_of_the_infrastructure(error: BaseException) -> bool:
    """Whether an error, or the one that it was raised from, is a file system's that may answer next time."""
    if isinstance(error, OSError) and error.errno in _INFRASTRUCTURE:
        return True
    return error.__cause__ is not None and _is_of_the_infrastructure(error.__cause__)


def _stored_inputs(work: Work) -> Iterator[str]:
    """Keys of all chunks that are read from the store, those of transient inputs among them."""
    for source in chain(*(work.inputs or ())):
        if source.inputs is None:
            yield source.key
        else:
            yield from _stored_inputs(source)


def _outcome(report: Report) -> dict[str, Any]:
    given = {"error": report.error, "details": report.details, "fatal": report.fatal}
    return {name: value for name, value in given.items() if value}


def _message(error: Exception) -> str:
    """The message alone for errors made for people, with its type for the others."""
    text = str(error) or "no message"
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"

"""The record of a chunk: what it is, where every number comes from, and what it took by all counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from pipeline.declare.parameter import flattened
from pipeline.planning.key import canonical
from pipeline.store.provenance import as_json, code, device, host
from pipeline.store.record import Facts, Record
from pipeline.worker.certificate import certification
from pipeline.worker.energy import energy_meter
from pipeline.worker.evaluation import Evaluation
from pipeline.worker.events import EventKind, Send, error_text
from pipeline.worker.gpu_counters import joules_of, watch
from pipeline.worker.memory import device_pool, host_peak
from pipeline.worker.stopwatch import PROCESS, Lap, first_in_process
from pipeline.worker.work import RunContext, Work
from stages.base.compilation import Kernels
from stages.base.gpus import gpus_of

T = TypeVar("T")

EXPECTED = ("memory", "device_memory", "resident", "stored")
"""Names of the bytes that a plan expects of a chunk."""


def measured(work: Work, send: Send, what: str, ask: Callable[[], T], otherwise: T | None = None) -> T | None:
    """Measure what a chunk takes; a failure of that ends no chunk, and is told once by each process."""
    try:
        return ask()
    except Exception as error:
        if first_in_process(f"failure of {what}"):
            text = f"{what} of chunks cannot be measured on {host()} ({error_text(error)}); the run goes on"
            send(work.event(EventKind.NOTE, message=text))
        return otherwise


class Meters:
    """Counters of the time, energy and memory of a chunk, from this moment on.

    Args:
        work: the chunk.
        send: where is said what cannot be measured.
        evaluation: of its task, which knows the seconds of stages.
    """

    def __init__(self, work: Work, send: Send, evaluation: Evaluation) -> None:
        self._work, self._send, self._evaluation = work, send, evaluation
        backend, called = work.node.backend, time.perf_counter()
        self._gpus, self._pool = self._ask("GPUs", lambda: watch(backend)), device_pool(backend)
        self._joules = None if self._gpus else self._ask("energy", lambda: energy_meter(backend))
        self._began, self._cpu = time.time(), time.process_time()
        self._drawn = self._ask("energy", self._joules) if self._joules else None
        self._host = self._ask("memory", host_peak)
        self._opening = time.perf_counter() - called if first_in_process(backend) else None
        self._ask("time", evaluation.stopwatch.take)
        if self._pool:
            self._ask("memory", self._pool.restart)

    def _ask(self, what: str, ask: Callable[[], T], otherwise: T | None = None) -> T | None:
        return measured(self._work, self._send, what, ask, otherwise)

    def record(self, context: RunContext, statistics: Facts) -> Record:
        """The chunk's record, but for its checks; statistics: as its stage recorded them."""
        work, node, stage, finished = self._work, self._work.node, self._work.node.stage, time.time()
        record = Record(
            stage=stage.name,
            version=stage.version,
            node=node.name,
            key=work.key,
            coordinates=work.coordinates,
            parameters=canonical(flattened(stage.parameters, node.parameters), node.name),
            chunk=node.chunk,
            inputs=[[source.key for source in sources] for sources in work.inputs or ()],
            files={name: {"path": v.path, "sha256": v.digest} for name, v in work.files.items()},
            backend=node.backend,
            device=device(node.backend),
            **certification(node.backend),
            statistics=as_json(statistics),
            seconds=finished - self._began,
            finished=datetime.fromtimestamp(finished, UTC).isoformat(),
            host=host(),
            run=context.run,
            code={**code(), "sources": context.sources.digest},
        )
        return self._with_counts(record)

    def _with_counts(self, record: Record) -> Record:
        watching, pool, evaluation = self._gpus, self._pool, self._evaluation
        gpus = (self._ask("GPUs", lambda: watching.facts(pool.each)) or []) if watching and pool else []
        drawn = self._ask("energy", self._joules) if self._joules and self._drawn is not None else None
        cpu = time.process_time() - self._cpu
        host_bytes = self._ask("memory", self._host) if self._host else None
        laps, outside = self._ask("time", evaluation.stopwatch.take) or ([], {})
        kept = self._ask("memory", lambda: evaluation.resident_bytes(record.backend))
        expected = self._ask("memory", lambda: expected_of(self._work))
        return replace(
            record,
            gpus=gpus,
            joules=joules_of(gpus) if drawn is None or self._drawn is None else drawn - self._drawn,
            device_bytes=pool.bytes if pool else None,
            cpu_seconds=cpu,
            host_bytes=host_bytes,
            parts=self._ask("time", lambda: parts_of(laps)) or [],
            loading_seconds=evaluation.loading,
            resident=kept or {"bytes": 0, "limit": 0},
            expected=expected or dict.fromkeys(EXPECTED, 0),
            worker={"process": PROCESS, "opening": self._opening, "kernels": kernels_of(outside)},
            transient=evaluation.transient_statistics(self._work),
        )


def parts_of(laps: Iterable[Lap]) -> list[Facts]:
    """The stages that ran for a chunk, with their seconds and the passes that were expected of them.

    kernels: number of those that were compiled or read, by kind, their seconds, which the part has, too, and
    bytes that they left taken on the host.
    """
    return [
        {
            "node": lap.node.name,
            "stage": lap.node.stage.name,
            "seconds": lap.seconds,
            "first": lap.first,
            "kernels": kernels_of(lap.kernels),
            "work": [
                [each.name, each.count, each.nbytes, each.counted, as_json(each.alike)]
                for each in lap.node.cost.work
            ],
        }
        for lap in laps
    ]


def kernels_of(kernels: Mapping[str, Kernels]) -> dict[str, list[float]]:
    """Kernels as a record holds them."""
    return {kind: list(each) for kind, each in kernels.items()}


def kernel_seconds(record: Record) -> float:
    """Seconds in which a chunk waited for kernels, by its record."""
    kinds = (*(part["kernels"] for part in record.parts), record.worker["kernels"])
    return sum(Kernels(*each).seconds for kernels in kinds for each in kernels.values())


def expected_of(work: Work) -> dict[str, int]:
    """Bytes that a plan expects of a chunk: on the host, on a GPU with inputs, of those that stay, stored.

    Of several GPUs, on that which holds most.
    """
    cost, gpus = work.node.cost, gpus_of(work.node.backend)
    held = {s.key: s.node.cost.on_each(gpus).device_memory for s in work.transient()}
    kept = {source.key for source in work.transient() if source.node.stage.resident}
    device_memory = cost.on_each(gpus).device_memory + sum(held.values())
    values = cost.memory, device_memory, sum(held[key] for key in kept), cost.stored
    return dict(zip(EXPECTED, values, strict=True))

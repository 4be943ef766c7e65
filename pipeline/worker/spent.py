"""Facts in a chunk's record that later forecasts learn from: its parts, and what its plan expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.store.provenance import plain
from pipeline.worker.stopwatch import Lap
from pipeline.worker.work import Work
from stages.base.compilation import Kernels
from stages.base.gpus import gpus_of

EXPECTED = ("memory", "device_memory", "resident", "stored")
"""Names of the bytes that a plan expects of a chunk."""


def parts_of(laps: Iterable[Lap]) -> list[dict[str, Any]]:
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
                [each.name, each.count, each.nbytes, each.counted, plain(each.alike)]
                for each in lap.node.cost.work
            ],
        }
        for lap in laps
    ]


def kernels_of(kernels: Mapping[str, Kernels]) -> dict[str, list[float]]:
    """Kernels as a record holds them."""
    return {kind: list(each) for kind, each in kernels.items()}


def kernel_seconds(record: Mapping[str, Any]) -> float:
    """Seconds in which a chunk waited for kernels, by its record."""
    kinds = (*(part["kernels"] for part in record["parts"]), record["worker"]["kernels"])
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

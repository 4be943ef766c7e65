"""Speed, memory against plan and energy of each node; figures of each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import NodeCost, costs
from pipeline.reading.dashboard.facts.gpus import GpuFigures
from pipeline.reading.dashboard.look import Columns, percent, size, table_of
from pipeline.reading.dashboard.panel import Column
from pipeline.reading.report import Section

NODES: Columns[NodeCost] = {
    "node": lambda cost: cost.node,
    "chunks": lambda cost: cost.chunks,
    "work": lambda cost: duration_text(cost.seconds),
    "planned memory": lambda cost: size(cost.planned_bytes) or "not known",
    "GPU memory, most": lambda cost: size(cost.device_bytes),
    "host memory, most": lambda cost: size(cost.host_bytes),
    "measured / planned": lambda cost: _measured_by_planned(cost),
    "joules": lambda cost: cost.joules,
    "chunks metered": lambda cost: cost.metered,
}
GPUS: Columns[GpuFigures] = {
    "GPU": lambda gpu: gpu.place,
    "chunks": lambda gpu: gpu.chunks,
    "work": lambda gpu: duration_text(gpu.seconds),
    "memory, most": lambda gpu: size(gpu.most_bytes),
    "busy": lambda gpu: percent(_rate(gpu.busy_seconds, gpu.seconds)),
    "joules": lambda gpu: gpu.joules,
    "mean W": lambda gpu: _rate(gpu.joules, gpu.seconds),
    "NVLink sent": lambda gpu: size(gpu.sent),
    "NVLink received": lambda gpu: size(gpu.received),
    "sent, GB/s": lambda gpu: _rate(gpu.sent, 1e9 * gpu.traffic_seconds),
}


def resources(columns: Sequence[Column], campaign: Campaign) -> Section:
    """Cost of each node by records and plans; what they do not hold is said. columns: of workflows."""
    notes = ["Most bytes of any chunk, against what the plan of a run that is followed said."]
    notes += [column.note for column in columns if column.note]
    added = {column.head: partial(column.value, campaign) for column in columns}
    return Section(
        "Speed, memory, energy by node", " ".join(notes), [table_of({**NODES, **added}, costs(campaign))]
    )


def _measured_by_planned(cost: NodeCost) -> float | None:
    measured = cost.device_bytes if cost.device_bytes is not None else cost.host_bytes
    return measured / cost.planned_bytes if measured is not None and cost.planned_bytes else None


def gpus(campaign: Campaign) -> Section:
    """Memory that chunks took of each GPU, how busy it was, what it drew and sent to others."""
    known = campaign.records.gpus
    if not known:
        return Section("GPUs", "no record is of a GPU")
    note = "A chunk that several GPUs share counts on each. Busy: part of the time with a kernel."
    return Section("GPUs", note, [table_of(GPUS, [known[place] for place in sorted(known)])])


def _rate(value: float | None, seconds: float) -> float | None:
    return None if value is None else value / max(seconds, 1e-9)

"""Speed, memory against plan and energy of each node; figures of each GPU."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import NodeCost, costs
from pipeline.reading.dashboard.facts.gpus import GpuFigures
from pipeline.reading.dashboard.look import size, table
from pipeline.reading.dashboard.panel import Column
from pipeline.reading.report import Section

NODES = (
    "node", "chunks", "work", "planned memory", "GPU memory, most", "host memory, most", "measured / planned",
    "joules", "chunks metered",
)  # fmt: skip
GPUS = (
    "GPU", "chunks", "work", "memory, most", "busy", "joules", "mean W", "NVLink sent", "NVLink received",
    "sent, GB/s",
)  # fmt: skip


def resources(columns: Sequence[Column], campaign: Campaign) -> Section:
    """Cost of each node by records and plans; what they do not hold is said. columns: of workflows."""
    notes = ["Most bytes of any chunk, against what the plan of a run that is followed said."]
    notes += [column.note for column in columns if column.note]
    rows = [[*_node(cost), *(column.value(campaign, cost) for column in columns)] for cost in costs(campaign)]
    heads = [*NODES, *(column.head for column in columns)]
    return Section("Speed, memory, energy by node", " ".join(notes), [table(heads, rows)])


def _node(cost: NodeCost) -> list[object]:
    measured = cost.device_bytes if cost.device_bytes is not None else cost.host_bytes
    return [
        cost.node,
        cost.chunks,
        duration_text(cost.seconds),
        "not known" if cost.planned_bytes is None else size(cost.planned_bytes),
        size(cost.device_bytes),
        size(cost.host_bytes),
        measured / cost.planned_bytes if measured is not None and cost.planned_bytes else None,
        cost.joules,
        cost.metered,
    ]


def gpus(campaign: Campaign) -> Section:
    """Memory that chunks took of each GPU, how busy it was, what it drew and sent to others."""
    known = campaign.records.gpus
    if not known:
        return Section("GPUs", "no record is of a GPU")
    note = "A chunk that several GPUs share counts on each. Busy: part of the time with a kernel."
    return Section("GPUs", note, [table(GPUS, [_gpu(known[place]) for place in sorted(known)])])


def _gpu(gpu: GpuFigures) -> list[object]:
    seconds = max(gpu.seconds, 1e-9)
    return [
        gpu.place,
        gpu.chunks,
        duration_text(gpu.seconds),
        size(gpu.most_bytes),
        None if gpu.busy_seconds is None else f"{100 * gpu.busy_seconds / seconds:.0f} %",
        gpu.joules,
        None if gpu.joules is None else gpu.joules / seconds,
        size(gpu.sent),
        size(gpu.received),
        None if gpu.sent is None else gpu.sent / max(gpu.traffic_seconds, 1e-9) / 1e9,
    ]

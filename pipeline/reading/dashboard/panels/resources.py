"""Speed, memory against plan and energy of each node; figures of each GPU."""

from __future__ import annotations

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.records import Figures
from pipeline.reading.dashboard.look import Columns, percent, size, table_of
from pipeline.reading.dashboard.panel import Addition, NodeFigures
from pipeline.reading.report import Section

NODES: Columns[NodeFigures] = {
    "node": lambda node: node.name,
    "chunks": lambda node: node.figures.chunks,
    "work": lambda node: duration_text(node.figures.total("seconds") or 0.0),
    "planned memory": lambda node: size(node.campaign.planned_bytes(node.name)),
    "GPU memory, most": lambda node: size(node.figures.most("device_bytes")),
    "host memory, most": lambda node: size(node.figures.most("host_bytes")),
    "measured / planned": lambda node: _measured_by_planned(node),
    "joules": lambda node: node.figures.total("joules"),
    "chunks metered": lambda node: node.figures.counted("joules") or None,
}
GPUS: Columns[tuple[str, Figures]] = {
    "GPU": lambda gpu: gpu[0],
    "chunks": lambda gpu: gpu[1].chunks,
    "work": lambda gpu: duration_text(gpu[1].total("seconds") or 0.0),
    "memory, most": lambda gpu: size(gpu[1].most("device_bytes")),
    "busy": lambda gpu: percent(_rate(gpu[1], "busy_seconds")),
    "joules": lambda gpu: gpu[1].total("joules"),
    "mean W": lambda gpu: _rate(gpu[1], "joules"),
    "NVLink sent": lambda gpu: size(gpu[1].total("nvlink_sent")),
    "NVLink received": lambda gpu: size(gpu[1].total("nvlink_received")),
    "sent, GB/s": lambda gpu: _rate(gpu[1], "nvlink_sent", "sending_seconds", 1e9),
}


def resources(addition: Addition, campaign: Campaign) -> Section:
    """Cost of each node by records and plans, in the order of the grid; what they do not hold is said."""
    order, nodes = [row.node for row in campaign.grid.rows], campaign.records.nodes
    names = sorted(nodes, key=lambda name: order.index(name) if name in order else len(order))
    rows = [NodeFigures(name, nodes[name], campaign) for name in names]
    note = "Most bytes of any chunk, against what the plan of a run that is followed said; –: not measured."
    table = table_of({**NODES, **addition.columns}, rows)
    return Section("Speed, memory, energy by node", " ".join([note, *addition.notes]), [table])


def _measured_by_planned(node: NodeFigures) -> float | None:
    most, planned = node.figures.most, node.campaign.planned_bytes(node.name)
    measured = most("host_bytes") if most("device_bytes") is None else most("device_bytes")
    return None if measured is None or not planned else measured / planned


def gpus(campaign: Campaign) -> Section:
    """Memory that chunks took of each GPU, how busy it was, what it drew and sent to others."""
    known = campaign.records.gpus
    if not known:
        return Section("GPUs", "no record is of a GPU")
    note = "A chunk that several GPUs share counts on each. Busy: part of the time with a kernel."
    return Section("GPUs", note, [table_of(GPUS, sorted(known.items()))])


def _rate(figures: Figures, name: str, by: str = "seconds", unit: float = 1.0) -> float | None:
    total = figures.total(name)
    return None if total is None else total / unit / max(figures.total(by) or 0.0, 1e-9)

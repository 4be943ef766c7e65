"""Speed, memory against plan, and energy of each node."""

from __future__ import annotations

from dask.utils import format_bytes

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import NodeCost, costs
from pipeline.reading.dashboard.look import Cell, html, number, table

HEADS = (
    "node", "chunks", "work", "planned memory", "GPU memory, most", "host memory, most", "measured / planned",
    "GFLOP/s", "of copy bandwidth", "joules", "chunks metered", "joules × variance",
)  # fmt: skip


class Resources:
    """A table with what records and plans hold; what they do not hold is said."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[NodeCost]:
        """Costs of each node."""
        return costs(campaign)

    def show(self, entries: list[NodeCost]) -> None:
        """A row for each node."""
        note = (
            "<p>Most bytes of any chunk, against what the plan of a run that is followed said. "
            "Joules × variance: energy for an error of 1; divide by the variance that you want. "
            "Copy bandwidth: of a processor, known after quarkline bench or certify ran there.</p>"
        )
        rows = [_row(each) for each in entries]
        self.root.text = f"<h2>Speed, memory, energy by node</h2>{note}{table(HEADS, rows)}"


def _row(cost: NodeCost) -> list[Cell]:
    measured = cost.device_bytes if cost.device_bytes is not None else cost.host_bytes
    compared = measured / cost.planned_bytes if measured is not None and cost.planned_bytes else None
    return [
        cost.node,
        cost.chunks,
        duration_text(cost.seconds),
        "not known" if cost.planned_bytes is None else format_bytes(int(cost.planned_bytes)),
        _bytes(cost.device_bytes),
        _bytes(cost.host_bytes),
        compared,
        cost.gflops,
        None if cost.of_copy is None else f"{100 * cost.of_copy:.0f} %",
        cost.joules,
        cost.metered,
        None if cost.joules_times_variance is None else number(cost.joules_times_variance),
    ]


def _bytes(size: float | None) -> str | None:
    return None if size is None else format_bytes(int(size))

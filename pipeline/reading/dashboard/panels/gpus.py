"""Each GPU: what its chunks took of its memory, how busy it was, what it drew and sent to others."""

from __future__ import annotations

from dataclasses import replace

from dask.utils import format_bytes

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.gpus import GpuFigures
from pipeline.reading.dashboard.look import Cell, html, table

HEADS = (
    "GPU", "chunks", "work", "memory, most", "busy", "joules", "mean W", "NVLink sent", "NVLink received",
    "sent, GB/s",
)  # fmt: skip


class Gpus:
    """A table of the GPUs that chunks were computed on."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[GpuFigures]:
        """Figures of each, as far as records were read."""
        known = campaign.records.gpus
        return [replace(known[place]) for place in sorted(known)]

    def show(self, entries: list[GpuFigures]) -> None:
        """A row for each GPU."""
        note = "<p>A chunk that several GPUs share counts on each. Busy: part of the time with a kernel.</p>"
        rows = table(HEADS, [_row(each) for each in entries])
        nothing = "<p>no record is of a GPU</p>"
        self.root.text = f"<h2>GPUs</h2>{note + rows if entries else nothing}"


def _row(gpu: GpuFigures) -> list[Cell]:
    seconds = max(gpu.seconds, 1e-9)
    return [
        gpu.place,
        gpu.chunks,
        duration_text(gpu.seconds),
        _bytes(gpu.most_bytes),
        None if gpu.busy_seconds is None else f"{100 * gpu.busy_seconds / seconds:.0f} %",
        gpu.joules,
        None if gpu.joules is None else gpu.joules / seconds,
        _bytes(gpu.sent),
        _bytes(gpu.received),
        None if gpu.sent is None else gpu.sent / max(gpu.traffic_seconds, 1e-9) / 1e9,
    ]


def _bytes(size: int | None) -> str | None:
    return None if size is None else format_bytes(size)

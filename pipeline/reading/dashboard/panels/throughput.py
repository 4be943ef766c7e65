"""Chunks a second over time."""

from __future__ import annotations

from bokeh.models import ColumnDataSource

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.pace import throughput
from pipeline.reading.dashboard.look import DONE, plot


class Throughput:
    """Bars: commits of the runs of now, or of the last one."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"time": [], "rate": [], "width": []})
        self.root = plot("commits a second", "", "chunks / s", 240, x_axis_type="datetime", tools="")
        self.root.vbar(x="time", top="rate", width="width", color=DONE, source=self._source)
        self.root.y_range.start = 0

    @staticmethod
    def read(campaign: Campaign) -> dict[str, list[float]]:
        """Times in milliseconds since 1970, rates, and widths of bars in milliseconds."""
        times, rates, width = throughput(campaign)
        return {"time": [1000 * t for t in times], "rate": rates, "width": [1000 * width for _ in times]}

    def show(self, facts: dict[str, list[float]]) -> None:
        """Replace the bars."""
        self._source.data = dict(facts)

"""GPU power and energy over time."""

from __future__ import annotations

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, LinearAxis, Range1d

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import power
from pipeline.reading.dashboard.look import DONE, NOT_MEASURED, RUNNING, html, legend_below, plot

Columns = dict[str, list[float]]


class Power:
    """Mean watts while chunks were computed, and joules of all of them so far, by the GPUs' own counters."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"time": [], "watts": [], "joules": []})
        self._figure = plot("", "", "W for one chunk", 260, x_axis_type="datetime", tools="")
        self._figure.extra_y_ranges = {"energy": Range1d(0, 1)}
        self._figure.add_layout(LinearAxis(y_range_name="energy", axis_label="J so far"), "right")
        legend_below(self._figure)
        self._head = html()
        self.root = column(self._head, self._figure, sizing_mode="stretch_width")
        line = {"line_width": 2, "source": self._source}
        self._figure.line("time", "watts", color=RUNNING, legend_label="power", **line)
        self._figure.line("time", "joules", color=DONE, legend_label="energy", y_range_name="energy", **line)

    @staticmethod
    def read(campaign: Campaign) -> Columns:
        """Times in milliseconds since 1970, watts, joules."""
        times, watts, joules = power(campaign)
        return {"time": [1000 * each for each in times], "watts": watts, "joules": joules}

    def show(self, facts: Columns) -> None:
        """Replace the lines."""
        said = "" if facts["time"] else f"<p>{NOT_MEASURED}: no record has joules</p>"
        self._head.text = f"<h2>GPU power and energy</h2>{said}"
        self._figure.visible = bool(facts["time"])
        self._figure.extra_y_ranges["energy"].end = 1.05 * max([1.0, *facts["joules"]])
        self._source.data = dict(facts)

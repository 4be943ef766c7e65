"""Figures over time: chunks a second, GPU power and energy."""

from __future__ import annotations

from functools import partial

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, LinearAxis, Range1d

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.pace import throughput
from pipeline.reading.dashboard.look import DONE, NOT_MEASURED, RUNNING, html, legend_below, plot
from pipeline.reading.dashboard.panel import Drawing, Panel

FEW_TICKS = 4
"""Of times of day, whose labels are side by side on a phone."""

Series = dict[str, list[float]]
"""Times and widths in milliseconds, since 1970."""


def _rates(campaign: Campaign) -> Series:
    times, rates, width = throughput(campaign)
    return {"time": [1000 * t for t in times], "rate": rates, "width": [1000 * width for _ in times]}


def _draw_rates() -> Drawing[Series]:
    source = ColumnDataSource({"time": [], "rate": [], "width": []})
    root = plot("commits per second", "", "chunks / s", 240, x_axis_type="datetime")
    root.vbar(x="time", top="rate", width="width", color=DONE, source=source)
    root.y_range.start = 0
    root.xaxis.ticker.desired_num_ticks = FEW_TICKS
    return root, partial(setattr, source, "data")


def _power(campaign: Campaign) -> Series:
    times, watts, joules = campaign.records.power()
    return {"time": [1000 * t for t in times], "watts": watts, "joules": joules}


def _draw_power() -> Drawing[Series]:
    source = ColumnDataSource({"time": [], "watts": [], "joules": []})
    head, figure = html(), plot("", "", "W for one chunk", 260, x_axis_type="datetime")
    figure.xaxis.ticker.desired_num_ticks = FEW_TICKS
    figure.extra_y_ranges = {"energy": Range1d(0, 1)}
    figure.add_layout(LinearAxis(y_range_name="energy", axis_label="J so far"), "right")
    legend_below(figure)
    line = {"line_width": 2, "source": source}
    figure.line("time", "watts", color=RUNNING, legend_label="power", **line)
    figure.line("time", "joules", color=DONE, legend_label="energy", y_range_name="energy", **line)

    def show(facts: Series) -> None:
        said = "" if facts["time"] else f"<p>{NOT_MEASURED}: no record has joules</p>"
        head.text = f"<h2>GPU power and energy</h2>{said}"
        figure.visible = bool(facts["time"])
        figure.extra_y_ranges["energy"].end = 1.05 * max([1.0, *facts["joules"]])
        source.data = facts

    return column(head, figure, sizing_mode="stretch_width"), show


THROUGHPUT = Panel(_rates, _draw_rates)
"""Bars: commits of the runs of now, or of the last one."""

POWER = Panel(_power, _draw_power)
"""Mean watts while chunks were computed, and joules of all of them so far, by the GPUs' own counters."""

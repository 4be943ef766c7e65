"""The page on the dashboard: progress of nodes, failures, residual histories, throughput."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.core.templates import FILE
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, FactorRange, PreText
from bokeh.palettes import Category10
from bokeh.plotting import figure

from pipeline.running.monitor_view import SHOWN_CHUNKS, SHOWN_STATES, RunView

COLOURS = ("#3b7d4f", "#b03a2e", "#d9a441", "#3f6fa8", "#d8d8d8")
"""Of done, failed, blocked, running, waiting."""

REFRESH = 1000
"""Milliseconds."""

TEMPLATE = FILE.environment.from_string(
    """{% extends base %}
{% block preamble %}<meta name="viewport" content="width=device-width, initial-scale=1">{% endblock %}
"""
)
"""Of the page: phones show it at their own width."""


def page(current: Callable[[], RunView], scheduler: Any, extra: dict[str, Any], document: Any) -> None:
    """Fill a Bokeh document and keep it up to date with the current run."""
    progress, residuals, speed, failures = _Progress(), _Residuals(), _Speed(), _Failures()

    def update() -> None:
        view = current()
        progress.update(view)
        residuals.update(view)
        speed.update(view)
        failures.update(view)

    update()
    document.title = "quarkline"
    document.template = TEMPLATE
    wrapping = {"flex-wrap": "wrap"}  # on a phone below each other
    below = row(residuals.figure, speed.figure, sizing_mode="stretch_width", styles=wrapping)
    document.add_root(column(progress.figure, failures.text, below, sizing_mode="stretch_width"))
    document.add_periodic_callback(update, REFRESH)


class _Failures:
    """What failed and why, errors alike on one line; nothing while all goes well."""

    def __init__(self) -> None:
        wrapped = {"color": COLOURS[1], "white-space": "pre-wrap"}
        self.text = PreText(text="", sizing_mode="stretch_width", styles=wrapped)

    def update(self, view: RunView) -> None:
        self.text.text = "\n".join(view.failures.lines())


class _Progress:
    """Stacked bars: chunks of each node by state."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"node": [], **{state: [] for state in SHOWN_STATES}})
        self.figure = figure(y_range=FactorRange(), height=260, sizing_mode="stretch_width", title="chunks")
        self.figure.hbar_stack(
            list(SHOWN_STATES),
            y="node",
            height=0.7,
            color=COLOURS,
            source=self._source,
            legend_label=list(SHOWN_STATES),
        )
        self.figure.legend.orientation = "horizontal"
        self.figure.legend.location = "bottom_right"

    def update(self, view: RunView) -> None:
        nodes = list(view.missing)
        self.figure.y_range.factors = nodes[::-1]
        self._source.data = {"node": nodes, **view.counts()}
        done = sum(sum(counts.values()) for counts in view.ended.values())
        self.figure.title.text = (
            f"run {view.name}: {done} of {view.missing.total()} chunks" if view.name else "no run"
        )


class _Residuals:
    """Residual histories of the chunks that reported last."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"done": [], "residual": [], "label": [], "colour": []})
        self.figure = figure(
            y_axis_type="log",
            height=320,
            min_width=320,
            sizing_mode="stretch_width",
            title="residuals of solves",
        )
        self.figure.multi_line(
            "done", "residual", line_color="colour", line_width=2, legend_field="label", source=self._source
        )
        self.figure.xaxis.axis_label = "iterations"
        self.figure.yaxis.axis_label = "largest relative residual"

    def update(self, view: RunView) -> None:
        palette = Category10[10]
        histories = list(view.histories.values())[-SHOWN_CHUNKS:]
        self._source.data = {
            "done": [[done for done, _ in points] for points in histories],
            "residual": [[residual for _, residual in points] for points in histories],
            "label": list(view.histories)[-SHOWN_CHUNKS:],
            "colour": [palette[k % len(palette)] for k in range(len(histories))],
        }


class _Speed:
    """Chunks a second, and the speeds that stages report."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"time": [], "value": [], "label": [], "colour": []})
        self.figure = figure(
            x_axis_type="datetime", height=320, min_width=320, sizing_mode="stretch_width", title="throughput"
        )
        self.figure.multi_line(
            "time", "value", line_color="colour", line_width=2, legend_field="label", source=self._source
        )

    def update(self, view: RunView) -> None:
        lines = {"chunks/s": view.throughput(), **{name: list(points) for name, points in view.rates.items()}}
        palette = Category10[10]
        self._source.data = {
            "time": [[1000 * moment for moment, _ in points] for points in lines.values()],
            "value": [[value for _, value in points] for points in lines.values()],
            "label": list(lines),
            "colour": [palette[k % len(palette)] for k in range(len(lines))],
        }

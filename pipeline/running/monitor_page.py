"""The page on the dashboard: progress of nodes, failures, residual histories, throughput."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

from bokeh.core.templates import FILE
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, Legend, PreText
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
        self.figure = figure(
            y_range=FactorRange(),
            height=300,
            sizing_mode="stretch_width",
            title="chunks",
            toolbar_location=None,
        )
        _legend_below(self.figure, 3)
        self.figure.hbar_stack(
            list(SHOWN_STATES),
            y="node",
            height=0.7,
            color=COLOURS,
            source=self._source,
            legend_label=list(SHOWN_STATES),
        )

    def update(self, view: RunView) -> None:
        nodes = list(view.missing)
        self.figure.y_range.factors = nodes[::-1]
        self._source.data = {"node": nodes, **view.counts()}
        done = sum(sum(counts.values()) for counts in view.ended.values())
        self.figure.title.text = (
            f"{done} of {view.missing.total()} chunks, run {view.name}" if view.name else "no run"
        )


class _Residuals:
    """Residual histories of the chunks that reported last, in the colour of their node."""

    def __init__(self) -> None:
        self._source = ColumnDataSource(
            {name: [] for name in ("done", "residual", "node", "label", "colour")}
        )
        self.figure = _figure("residuals of solves", y_axis_type="log")
        self.figure.multi_line(
            "done", "residual", line_color="colour", line_width=2, legend_field="node", source=self._source
        )
        self.figure.add_tools(HoverTool(tooltips=[("chunk", "@label"), ("residual", "$y{0.0e}")]))
        self.figure.xaxis.axis_label = "iterations"
        self.figure.yaxis.axis_label = "largest relative residual"

    def update(self, view: RunView) -> None:
        labels = list(view.histories)[-SHOWN_CHUNKS:]
        nodes = [label.partition(" ")[0] for label in labels]
        colours = dict(zip(dict.fromkeys(view.missing), cycle(Category10[10]), strict=False))
        self._source.data = {
            "done": [[done for done, _ in view.histories[label]] for label in labels],
            "residual": [[residual for _, residual in view.histories[label]] for label in labels],
            "node": nodes,
            "label": labels,
            "colour": [colours[node] for node in nodes],
        }


class _Speed:
    """Chunks a second, and the speeds that stages report."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({"time": [], "value": [], "label": [], "colour": []})
        self.figure = _figure("throughput", x_axis_type="datetime")
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


def _figure(title: str, **axes: str) -> Any:
    """One of the lower figures."""
    made = figure(
        height=360,
        min_width=320,
        sizing_mode="stretch_width",
        title=title,
        toolbar_location="above",
        **axes,
    )
    _legend_below(made, 2)
    return made


def _legend_below(made: Any, columns: int) -> None:
    """Where it covers nothing, in so many columns: a phone has room for them."""
    look = {"location": "center", "label_text_font_size": "9pt", "border_line_alpha": 0, "margin": 0}
    made.add_layout(Legend(ncols=columns, **look), "below")

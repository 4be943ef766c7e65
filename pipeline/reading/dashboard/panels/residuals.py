"""Residual histories of solves: those in work, and those that were committed last."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import colours, legend_below, plot

EMPTY: dict[str, list[Any]] = {name: [] for name in ("x", "y", "node", "label", "colour", "alpha")}


def lines_of(parts: list[tuple[str, list[tuple[float, float]], float]]) -> dict[str, list[Any]]:
    """Columns for lines: (label, points, opacity) each, in the colour of their node."""
    nodes = [label.partition(" ")[0] for label, _, _ in parts]
    palette = colours(sorted(set(nodes)))
    return {
        "x": [[x for x, _ in points] for _, points, _ in parts],
        "y": [[y for _, y in points] for _, points, _ in parts],
        "node": nodes,
        "label": [label for label, _, _ in parts],
        "colour": [palette[node] for node in nodes],
        "alpha": [alpha for _, _, alpha in parts],
    }


class Histories:
    """Lines on a logarithmic axis; what is in work stands out."""

    def __init__(self, title: str, axis: str) -> None:
        self._source = ColumnDataSource(dict(EMPTY))
        self.root = plot(title, axis, "largest relative residual", y_axis_type="log", tools="")
        legend_below(self.root)
        self.root.multi_line(
            "x", "y", line_color="colour", line_alpha="alpha", line_width=2, legend_field="node",
            source=self._source,
        )  # fmt: skip
        self.root.add_tools(HoverTool(tooltips=[("chunk", "@label"), ("residual", "$y{0.0e}")]))

    def show(self, facts: dict[str, list[Any]]) -> None:
        """Replace the lines."""
        self._source.data = dict(facts)


class Residuals(Histories):
    """Solves."""

    def __init__(self) -> None:
        super().__init__("residuals of solves (faint: committed)", "iterations")

    @staticmethod
    def read(campaign: Campaign) -> dict[str, list[Any]]:
        """Histories that drivers report, and those in records."""
        live = [(label, list(points), 1.0) for log in campaign.live for label, points in log.solves.items()]
        return lines_of([*live, *((each.label, each.points, 0.4) for each in campaign.records.solves)])


class Eigensolves(Histories):
    """Eigensolves."""

    def __init__(self) -> None:
        super().__init__("eigensolves (faint: committed)", "restarts")

    @staticmethod
    def read(campaign: Campaign) -> dict[str, list[Any]]:
        """Histories that drivers report, and those in records."""
        live = [(label, list(points), 1.0) for log in campaign.live for label, points in log.restarts.items()]
        return lines_of([*live, *((each.label, each.points, 0.4) for each in campaign.records.eigensolves)])

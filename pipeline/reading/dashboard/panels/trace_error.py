"""Error of traces against noise vectors, with 1 / sqrt(N), and rounds towards a target."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import FAILED, RUNNING, colours, legend_below, plot

COLUMNS = ("x", "y", "name", "colour")
MARKS: dict[str, list[Any]] = {name: [] for name in COLUMNS}


class TraceError:
    """Measured errors by node, each with the line that its last point continues; targets across."""

    def __init__(self) -> None:
        self._lines, self._scaled, self._targets, self._rounds = (
            ColumnDataSource(dict(MARKS)) for _ in range(4)
        )
        self.root = plot(
            "error and 1/√N (red: target, yellow: rounds)",
            "noise vectors", "error", x_axis_type="log", y_axis_type="log", tools="",
        )  # fmt: skip
        legend_below(self.root)
        style = {"line_color": "colour", "legend_field": "name", "line_width": 2}
        self.root.multi_line("x", "y", source=self._lines, **style)
        self.root.multi_line("x", "y", line_color="colour", line_dash="dashed", source=self._scaled)
        self.root.multi_line("x", "y", line_color="colour", line_width=2, source=self._targets)
        self.root.multi_line("x", "y", line_color="colour", line_width=2, source=self._rounds)
        self.root.add_tools(HoverTool(tooltips=[("", "@name"), ("N", "$x{0}"), ("error", "$y{0.00e}")]))

    @staticmethod
    def read(campaign: Campaign) -> dict[str, dict[str, list[Any]]]:
        """Columns of the lines of each kind."""
        curves, targets = campaign.samples.curves, campaign.samples.targets.values()
        palette = colours(sorted(curves))
        names = list(curves)
        hues = [palette[name] for name in curves]
        ends = [(c.counts, c.errors[-1]) for c in curves.values()]
        most = max([2, *(count for each in targets for count in each.counts), *(c[-1] for c, _ in ends)])
        return {
            "lines": _columns(
                [c.counts for c in curves.values()], [c.errors for c in curves.values()], names, hues
            ),
            "scaled": _columns(
                [counts for counts, _ in ends],
                [[error * (counts[-1] / n) ** 0.5 for n in counts] for counts, error in ends],
                names,
                hues,
            ),
            "targets": _columns(
                [[2, most] for _ in targets], [[t.asked] * 2 for t in targets], *_repeated(targets, FAILED)
            ),
            "rounds": _columns(
                [t.counts for t in targets], [t.errors for t in targets], *_repeated(targets, RUNNING)
            ),
        }

    def show(self, facts: dict[str, dict[str, list[Any]]]) -> None:
        """Replace the lines."""
        self._lines.data, self._scaled.data = dict(facts["lines"]), dict(facts["scaled"])
        self._targets.data, self._rounds.data = dict(facts["targets"]), dict(facts["rounds"])


def _columns(x: list[Any], y: list[Any], names: list[str], hues: list[str]) -> dict[str, list[Any]]:
    return {"x": x, "y": y, "name": names, "colour": hues}


def _repeated(targets: Any, hue: str) -> tuple[list[str], list[str]]:
    return [target.node for target in targets], [hue for _ in targets]

"""Error of traces against noise vectors, with 1 / sqrt(N), and rounds towards a target."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import FAILED, RUNNING, colours, legend_below, plot
from pipeline.reading.dashboard.panel import Drawing
from workflows.shared.dashboard.samples import Samples

COLUMNS = ("x", "y", "name", "colour")
KINDS = ("lines", "scaled", "targets", "rounds")

Lines = dict[str, list[Any]]


def errors(campaign: Campaign) -> dict[str, Lines]:
    """Measured errors by node, each with the line that its last point continues; targets across."""
    samples = campaign.own(Samples)
    palette, targets = colours(sorted(samples.curves)), samples.targets.values()
    curves = [(curve.counts, curve.errors, name, palette[name]) for name, curve in samples.curves.items()]
    known = [*samples.curves.values(), *(rounds for rounds, _ in targets)]
    most = max([2, *chain(*(curve.counts for curve in known))])
    return {
        "lines": _columns(curves),
        "scaled": _columns(
            (counts, [errors[-1] * (counts[-1] / n) ** 0.5 for n in counts], *about)
            for counts, errors, *about in curves
        ),
        "targets": _columns(([2, most], [asked] * 2, rounds.node, FAILED) for rounds, asked in targets),
        "rounds": _columns((rounds.counts, rounds.errors, rounds.node, RUNNING) for rounds, _ in targets),
    }


def _columns(lines: Iterable[tuple[Any, ...]]) -> Lines:
    several = list(lines)
    return {name: [line[k] for line in several] for k, name in enumerate(COLUMNS)}


def draw() -> Drawing[dict[str, Lines]]:
    """Lines on logarithmic axes."""
    sources = {kind: ColumnDataSource({name: [] for name in COLUMNS}) for kind in KINDS}
    title = "error and 1/√N (red: target, yellow: rounds)"
    root = plot(title, "noise vectors", "error", x_axis_type="log", y_axis_type="log")
    legend_below(root)
    style = {"line_color": "colour", "line_width": 2}
    root.multi_line("x", "y", source=sources["lines"], legend_field="name", **style)
    root.multi_line("x", "y", source=sources["scaled"], line_color="colour", line_dash="dashed")
    root.multi_line("x", "y", source=sources["targets"], **style)
    root.multi_line("x", "y", source=sources["rounds"], **style)
    root.add_tools(HoverTool(tooltips=[("", "@name"), ("N", "$x{0}"), ("error", "$y{0.00e}")]))

    def show(facts: dict[str, Lines]) -> None:
        for kind, source in sources.items():
            source.data = facts[kind]

    return root, show

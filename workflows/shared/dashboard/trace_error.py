"""Error of traces against noise vectors, with 1 / sqrt(N); apart from it, rounds towards a target.

A target is of another quantity than a trace, such as C(t): their errors differ by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import FAILED, colours, legend_below, plot
from pipeline.reading.dashboard.panel import Drawing
from workflows.shared.dashboard.samples import Samples

COLUMNS = ("x", "y", "name", "colour")

Lines = dict[str, list[Any]]


def errors(campaign: Campaign) -> dict[str, Lines]:
    """Measured errors by node, each with the line that its last point continues."""
    samples = campaign.own(Samples)
    palette = colours(sorted(samples.curves))
    curves = [(curve.counts, curve.errors, name, palette[name]) for name, curve in samples.curves.items()]
    return {
        "lines": _columns(curves),
        "scaled": _columns(
            (counts, [errors[-1] * (counts[-1] / n) ** 0.5 for n in counts], *about)
            for counts, errors, *about in curves
        ),
    }


def rounds(campaign: Campaign) -> dict[str, Lines]:
    """Errors of the quantities of targets after each round, and the ones asked for, across."""
    targets = [(curve, asked) for curve, asked in campaign.own(Samples).targets.values()]
    palette = colours(sorted(curve.node for curve, _ in targets))
    points = [
        (count, error, curve.node, palette[curve.node])
        for curve, _ in targets
        for count, error in zip(curve.counts, curve.errors, strict=True)
    ]
    across = [
        ([min(curve.counts) / 2, 2 * max(curve.counts)], [asked] * 2, f"target, {asked:.2e}", FAILED)
        for curve, asked in targets
        if asked > 0  # 0: a share of gauge noise that the stochastic noise hides
    ]
    return {"points": _columns(points), "targets": _columns(across)}


def _columns(lines: Iterable[tuple[Any, ...]]) -> Lines:
    several = list(lines)
    return {name: [line[k] for line in several] for k, name in enumerate(COLUMNS)}


def draw() -> Drawing[dict[str, Lines]]:
    """Lines on logarithmic axes."""
    root = _figure("error of one number of a node's results (dashed: 1/√N from the last point)")
    sources = {name: ColumnDataSource({each: [] for each in COLUMNS}) for name in ("lines", "scaled")}
    root.multi_line("x", "y", source=sources["lines"], legend_field="name", line_color="colour", line_width=2)
    root.multi_line("x", "y", source=sources["scaled"], line_color="colour", line_dash="dashed")

    def show(facts: dict[str, Lines]) -> None:
        for kind, source in sources.items():
            source.data = facts[kind]

    return root, show


def draw_rounds() -> Drawing[dict[str, Lines]]:
    """A point for each round, and the target as a line; nothing where no workflow has one."""
    root = _figure("error after each round, and the target")
    sources = {name: ColumnDataSource({each: [] for each in COLUMNS}) for name in ("points", "targets")}
    root.scatter("x", "y", source=sources["points"], legend_field="name", color="colour", size=9)
    root.multi_line(
        "x", "y", source=sources["targets"], legend_field="name", line_color="colour", line_width=2
    )

    def show(facts: dict[str, Lines]) -> None:
        root.visible = bool(facts["points"]["x"])
        for kind, source in sources.items():
            source.data = facts[kind]

    return root, show


def _figure(title: str) -> figure:
    root = plot(title, "noise vectors", "error", x_axis_type="log", y_axis_type="log")
    legend_below(root)
    root.add_tools(HoverTool(tooltips=[("", "@name"), ("N", "$x{0}"), ("error", "$y{0.00e}")]))
    return root

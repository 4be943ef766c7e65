"""The campaign by stage and configuration: cells of many chunks, never one for each."""

from __future__ import annotations

from html import escape

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, OpenURL, TapTool

from pipeline.declare.text import literal
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.grid import Row
from pipeline.reading.dashboard.look import DONE, FAILED, RUNNING, WAITING, html, plot
from pipeline.reading.dashboard.panel import Drawing, Panel

CELLS = ("row", "middle", "width", "fill", "alpha", "line", "node", "workflow", "column", "named", "text")
Cells = dict[str, list[object]]
Facts = tuple[Cells, list[str], str]
"""Columns of cells, names of rows, and what the columns of the grid are."""

STATES = (
    (f"background:{DONE}", "all is stored"),
    (f"background:{DONE}80", "a part is stored: the paler, the less"),
    (f"background:{WAITING}2e", "nothing is stored"),
    (f"background:{FAILED}", "something failed in the last run"),
    (f"border:2px solid {RUNNING}", "something is in work"),
)
LEGEND = " ".join(f'<span><i style="{style}"></i>{words}</span>' for style, words in STATES)

TIP = '<div style="max-width:240px;font:13px system-ui,sans-serif"><b>@node</b> @named<br>@text</div>'


def _read(campaign: Campaign) -> Facts:
    grid = campaign.grid
    several = len({row.workflow for row in grid.rows}) > 1
    names = [f"{row.workflow}: {row.node}" if several else row.node for row in grid.rows]
    cells = [
        (name, *_cell(row, column))
        for name, row in zip(names, grid.rows, strict=True)
        for column in sorted(row.total)
    ]
    axes = [
        f"{name}: {axis.labels[0]} … {axis.labels[-1]}" + f", {axis.width} to a column" * (axis.width > 1)
        for name, axis in grid.axes.items()
    ]
    columns: Cells = {name: [cell[k] for cell in cells] for k, name in enumerate(CELLS)}
    return columns, names, "; ".join(axes)


def _cell(row: Row, column: int) -> tuple[object, ...]:
    """By state: the darker, the more of it is stored; a yellow edge where something is in work."""
    left, right = row.axis.span(column)
    total, stored = row.total[column], row.stored[column]
    failed, running = row.failed[column], row.running[column]
    state = FAILED if failed else DONE if stored else WAITING
    alpha = 1.0 if failed else 0.25 + 0.75 * stored / total if stored else 0.18
    others = [f"{failed} failed"] * bool(failed) + [f"{running} in work"] * bool(running)
    text = ", ".join([f"{stored} of {total} stored", *others])
    line = RUNNING if running else None
    place = (left + right) / 2, 0.94 * (right - left)
    return *place, state, alpha, line, row.node, row.workflow, column, row.axis.named(column), text


def _draw() -> Drawing[Facts]:
    source = ColumnDataSource({name: [] for name in CELLS})
    root = plot("", "", "", 340, y_range=FactorRange(), x_range=(0, 1))
    head = html()
    root.rect(
        x="middle", y="row", width="width", height=0.86, fill_color="fill", fill_alpha="alpha",
        line_color="line", line_width=1, source=source,
    )  # fmt: skip
    tap = TapTool(callback=OpenURL(url="cell/@workflow/@node/@column", same_tab=True))
    root.add_tools(HoverTool(tooltips=TIP), tap)
    root.xaxis.visible = False
    root.grid.grid_line_color = None

    def show(facts: Facts) -> None:
        cells, names, axes = facts
        rows = names[::-1]
        said = escape(literal(axes)) or "no workflow was run into this store"
        head.text = f'<h2>Chunks by node</h2><p>{said}</p><p class="legend">{LEGEND}</p>'
        if list(root.y_range.factors) != rows:
            root.y_range.factors = rows
            root.height = 90 + max(20, min(34, 500 // max(1, len(rows)))) * len(rows)
        source.data = cells

    return column(head, root, sizing_mode="stretch_width"), show


OVERVIEW = Panel(_read, _draw)
"""A heat map: rows are nodes, columns are bins of the dimension that they are mapped over first."""

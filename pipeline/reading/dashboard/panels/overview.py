"""The campaign by stage and configuration: cells of many chunks, never one for each."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool, OpenURL, TapTool

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import DONE, FAILED, RUNNING, WAITING, plot

CELLS = ("middle", "width", "row", "fill", "alpha", "line", "node", "workflow", "column", "named", "text")
TIP = '<div style="max-width:240px;font:13px system-ui,sans-serif"><b>@node</b> @named<br>@text</div>'


class Overview:
    """A heat map: rows are nodes, columns are bins of the dimension that they are mapped over first."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({name: [] for name in CELLS})
        self.root = plot(
            "chunks by node and configuration", "", "", 340, y_range=FactorRange(), x_range=(0, 1), tools=""
        )
        self.root.rect(
            x="middle", y="row", width="width", height=0.86, fill_color="fill", fill_alpha="alpha",
            line_color="line", line_width=1, source=self._source,
        )  # fmt: skip
        tap = TapTool(callback=OpenURL(url="cell/@workflow/@node/@column", same_tab=True))
        self.root.add_tools(HoverTool(tooltips=TIP), tap)
        self.root.xaxis.visible = False
        self.root.grid.grid_line_color = None

    @staticmethod
    def read(campaign: Campaign) -> dict[str, Any]:
        """Cells and names of rows."""
        grid = campaign.grid
        several = len({row.workflow for row in grid.rows}) > 1
        cells: dict[str, list[Any]] = {name: [] for name in CELLS}
        names = []
        for row in grid.rows:
            name = f"{row.workflow}: {row.node}" if several else row.node
            names.append(name)
            for column, total in sorted(row.total.items()):
                left, right = grid.span(row, column)
                stored, failed, running = row.stored[column], row.failed[column], row.running[column]
                state = FAILED if failed else DONE if stored else WAITING
                alpha = 1.0 if failed else 0.25 + 0.75 * stored / total if stored else 0.18
                others = [f"{failed} failed"] * bool(failed) + [f"{running} in work"] * bool(running)
                text = ", ".join([f"{stored} of {total} stored", *others])
                line = RUNNING if running else None
                place = (left + right) / 2, 0.94 * (right - left), name
                names_of_cell = row.node, row.workflow, column, grid.named(row, column), text
                values = (*place, state, alpha, line, *names_of_cell)
                for key, value in zip(cells, values, strict=True):
                    cells[key].append(value)
        axes = [
            f"{name}: {axis.labels[0]} … {axis.labels[-1]}, {axis.width} to a column"
            for name, axis in grid.axes.items()
        ]
        return {"cells": cells, "rows": names, "axes": "; ".join(axes)}

    def show(self, facts: dict[str, Any]) -> None:
        """Cells by state: the darker, the more of it is stored; a yellow edge where something is in work."""
        rows = facts["rows"][::-1]
        if list(self.root.y_range.factors) != rows:
            self.root.y_range.factors = rows
            self.root.height = 90 + max(20, min(34, 500 // max(1, len(rows)))) * len(rows)
        if self.root.title.text != (title := facts["axes"] or "no workflow was run into this store"):
            self.root.title.text = title
        self._source.data = facts["cells"]

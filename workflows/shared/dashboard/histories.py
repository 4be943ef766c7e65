"""Convergence of solves, eigensolves and multigrid setups: those in work, and the last committed ones."""

from __future__ import annotations

from collections import deque
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.reading.dashboard.facts.runs import label_of
from pipeline.reading.dashboard.look import colours, legend_below, link, plot, table
from pipeline.reading.dashboard.panel import Drawing
from pipeline.reading.report import Section
from pipeline.store.record import Record
from pipeline.worker.events import Event, EventKind

MOST = 12
"""Histories that are kept of each kind: those that reported last in a run, and that were committed last."""

Point = tuple[float, float]
"""(iterations or restarts, largest residual): of solves relative to |b|, of eigensolves |A v - lambda v|."""

Lines = dict[str, list[Any]]

SETUPS = ("setup", "residual after a cycle", "attempts", "grids", "took")


class Histories(OwnFacts):
    """Residual histories by the statistics of records and by what chunks in work report."""

    def __init__(self) -> None:
        self.reported: dict[tuple[str, str], dict[str, list[Point]]] = {}
        """By run and kind (`solves`, `restarts`), of each chunk in work; of solves the block in hand."""
        self.clear()

    def clear(self) -> None:
        """Forget all that was committed."""
        self.committed: dict[str, deque[tuple[str, list[Point]]]] = {
            kind: deque(maxlen=MOST) for kind in ("solves", "restarts")
        }
        self.setups: deque[list[object]] = deque(maxlen=MOST)
        """Rows of `SETUPS`."""

    def add_record(self, stage: str, key: str, record: Record) -> None:
        """Take what a chunk's statistics say of its solver."""
        statistics, label = record.statistics, label_of(record)
        if history := statistics.get("history"):
            step = statistics.get("history_step", 1)
            points = [(step * number, float(residual)) for number, residual in enumerate(history)]
            self.committed["solves"].append((label, points))
        if rows := statistics.get("convergence"):
            self.committed["restarts"].append((label, [(row[0], float(row[2])) for row in rows]))
        if "rate" in statistics and "attempts" in statistics:
            grids, seconds = " / ".join(statistics.get("grids", ())), statistics.get("setup_seconds")
            about = statistics["rate"], len(statistics["attempts"]), grids
            took = None if seconds is None else duration_text(seconds)
            self.setups.append([link(label, f"chunk/{stage}/{key}"), *about, took])

    def add_event(self, run: str, event: Event) -> None:
        """Take what a chunk in work reports of its residual."""
        residual = event.more.get("residual") if event.kind == EventKind.PROGRESS else None
        if not isinstance(residual, (int, float)) or not residual > 0:
            return
        known = self.reported.setdefault((run, "restarts" if "restarts" in event.more else "solves"), {})
        points = known.setdefault(label_of(event), [])
        place = event.more.get("restarts", event.more.get("iterations", event.done))
        if points and place <= points[-1][0]:  # another block
            points.clear()
        points.append((place, residual))
        while len(known) > MOST:
            known.pop(next(iter(known)))


def lines(kind: str, campaign: Campaign) -> Lines:
    """Columns for lines, in the colour of their node: what is in work, and fainter what was committed."""
    histories = campaign.own(Histories)
    reported = (histories.reported.get((log.name, kind), {}) for log in campaign.live)
    parts = [(label, list(points), 1.0) for chunks in reported for label, points in chunks.items()]
    parts += [(label, points, 0.4) for label, points in histories.committed[kind]]
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


def draw(title: str, axis: str, residual: str) -> Drawing[Lines]:
    """Lines on a logarithmic axis; what is in work stands out."""
    source = ColumnDataSource({name: [] for name in ("x", "y", "node", "label", "colour", "alpha")})
    root = plot(title, axis, f"largest {residual}", y_axis_type="log")
    legend_below(root)
    root.multi_line(
        "x", "y", line_color="colour", line_alpha="alpha", line_width=2, legend_field="node", source=source
    )
    root.add_tools(HoverTool(tooltips=[("chunk", "@label"), ("residual", "$y{0.0e}")]))

    def show(facts: Lines) -> None:
        root.visible, source.data = bool(facts["x"]), facts

    return root, show


def setups(campaign: Campaign) -> Section:
    """A row for each multigrid setup, newest first: how fast its cycles converge."""
    rows = list(reversed(campaign.own(Histories).setups))
    return Section("Multigrid setups", "", [table(SETUPS, rows) if rows else "none in this store"])

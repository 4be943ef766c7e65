"""Additions to the dashboard of solves with noise vectors: how they converge, their errors, their speed."""

from __future__ import annotations

from functools import partial

from pipeline.reading.dashboard.look import Columns, percent
from pipeline.reading.dashboard.panel import Addition, NodeFigures, Page, Panel, text
from workflows.shared.dashboard import histories, trace_error
from workflows.shared.dashboard.histories import Histories
from workflows.shared.dashboard.samples import Samples


def joules_times_variance(node: NodeFigures) -> float | None:
    """Joules of all chunks times the variance of the mean over samples so far: what unit variance takes."""
    curve, joules = node.campaign.own(Samples).curves.get(node.name), node.figures.total("joules")
    if curve is None or joules is None or node.figures.counted("joules") < node.figures.chunks:
        return None
    return joules * curve.errors[-1] ** 2


RESIDUALS = Panel(
    partial(histories.lines, "solves"),
    partial(histories.draw, "residuals of solves (faint: committed)", "iterations", "|b - Ax| / |b|"),
)
EIGENSOLVES = Panel(
    partial(histories.lines, "restarts"),
    partial(histories.draw, "eigensolves (faint: committed)", "restarts", "|Av - λv|"),
)
TRACE_ERROR = Panel(trace_error.errors, trace_error.draw)
ROUNDS = Panel(trace_error.rounds, trace_error.draw_rounds)
SOLVES = Page(
    "quarkline-solves",
    "solves",
    ((RESIDUALS, TRACE_ERROR), (EIGENSOLVES, ROUNDS), (text(histories.setups),)),
)
COLUMNS: Columns[NodeFigures] = {
    "GFLOP/s": lambda node: node.figures.mean("gflops"),
    "of copy bandwidth": lambda node: percent(node.figures.mean("of_copy_bandwidth")),
    "joules × variance": joules_times_variance,
}
NOTES = (
    "Joules × variance: energy for an error of 1; divide by the variance that you want.",
    "Copy bandwidth: of a processor, known after quarkline bench or certify ran there.",
)
DASHBOARD = Addition((Histories, Samples), (SOLVES,), COLUMNS, NOTES)

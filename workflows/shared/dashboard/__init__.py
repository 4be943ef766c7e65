"""Additions to the dashboard of solves with noise vectors: how they converge, their errors, their speed."""

from __future__ import annotations

from functools import partial

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import NodeCost
from pipeline.reading.dashboard.look import number, percent
from pipeline.reading.dashboard.panel import Addition, Column, Page, Panel, text_panel
from workflows.shared.dashboard import histories, trace_error
from workflows.shared.dashboard.histories import Histories
from workflows.shared.dashboard.samples import Samples


def _gflops(campaign: Campaign, cost: NodeCost) -> float | None:
    return campaign.records.nodes[cost.node].mean("gflops")


def _of_copy_bandwidth(campaign: Campaign, cost: NodeCost) -> str | None:
    return percent(campaign.records.nodes[cost.node].mean("of_copy_bandwidth"))


def joules_times_variance(campaign: Campaign, cost: NodeCost) -> float | None:
    """Joules of all chunks times the variance of the mean over samples so far: what unit variance takes."""
    curve = campaign.own(Samples).curves.get(cost.node)
    if curve is None or cost.joules is None or cost.metered < cost.chunks:
        return None
    return cost.joules * curve.errors[-1] ** 2


def _joules_times_variance(campaign: Campaign, cost: NodeCost) -> str | None:
    product = joules_times_variance(campaign, cost)
    return None if product is None else number(product)


RESIDUALS = Panel(
    partial(histories.lines, "solves"),
    partial(histories.draw, "residuals of solves (faint: committed)", "iterations"),
)
EIGENSOLVES = Panel(
    partial(histories.lines, "restarts"),
    partial(histories.draw, "eigensolves (faint: committed)", "restarts"),
)
TRACE_ERROR = Panel(trace_error.errors, trace_error.draw)
SOLVES = Page(
    "quarkline-solves",
    "solves",
    ((RESIDUALS, TRACE_ERROR), (EIGENSOLVES, text_panel(histories.setups))),
)
COLUMNS = (
    Column("GFLOP/s", _gflops),
    Column(
        "of copy bandwidth",
        _of_copy_bandwidth,
        "Copy bandwidth: of a processor, known after quarkline bench or certify ran there.",
    ),
    Column(
        "joules × variance",
        _joules_times_variance,
        "Joules × variance: energy for an error of 1; divide by the variance that you want.",
    ),
)
DASHBOARD = Addition((Histories, Samples), (SOLVES,), COLUMNS)

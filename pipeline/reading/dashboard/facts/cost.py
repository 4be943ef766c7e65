"""Cost of a campaign: energy, memory, speed by node; jobs and budget by the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.store.ledger import Job, LedgerEvent, LedgerState

if TYPE_CHECKING:
    from pipeline.reading.dashboard.facts.campaign import Campaign

MOST_POINTS = 240
"""Points of a figure over time: more are averaged."""


@dataclass(frozen=True)
class NodeCost:
    """Cost of a node's chunks. None: no record has it, or nothing was planned."""

    node: str
    chunks: int
    seconds: float
    joules: float | None
    metered: int
    """Chunks whose joules were measured."""
    device_bytes: float | None
    """Most of any chunk."""
    host_bytes: float | None
    planned_bytes: float | None


def costs(campaign: Campaign) -> list[NodeCost]:
    """One entry for each node with records, in the order of the grid."""
    order = list(dict.fromkeys(row.node for row in campaign.grid.rows))
    planned = _planned_bytes(campaign)
    nodes = campaign.records.nodes
    entries = []
    for name in sorted(nodes, key=lambda name: order.index(name) if name in order else len(order)):
        figures = nodes[name]
        joules = _of(figures.joules)
        entries.append(
            NodeCost(
                node=name,
                chunks=len(figures.seconds),
                seconds=float(np.sum(figures.seconds)),
                joules=float(joules.sum()) if len(joules) else None,
                metered=len(joules),
                device_bytes=_most(figures.device_bytes),
                host_bytes=_most(figures.host_bytes),
                planned_bytes=planned.get(name),
            )
        )
    return entries


def _planned_bytes(campaign: Campaign) -> dict[str, float]:
    """Bytes that a task of each node was planned to need, by the runs that are followed."""
    logs = campaign.runs.followed.values()
    return {node: size for log in logs for node, size in log.state.first.memory.items() if size}


def _of(values: Iterable[float]) -> NDArray[np.float64]:
    numbers = np.asarray(values)
    return numbers[~np.isnan(numbers)]


def _most(values: Iterable[float]) -> float | None:
    numbers = _of(values)
    return float(numbers.max()) if len(numbers) else None


def power(campaign: Campaign) -> tuple[list[float], list[float], list[float]]:
    """Times (seconds since 1970), mean watts of the chunks that ended about then, and joules until then."""
    nodes = campaign.records.nodes.values()
    if not nodes:
        return [], [], []
    names = ("finished", "seconds", "joules")
    finished, seconds, joules = (np.concatenate([getattr(node, name) for node in nodes]) for name in names)
    order = np.argsort(finished)
    order = order[~np.isnan(joules[order])]
    groups = [group for group in np.array_split(order, MOST_POINTS) if len(group)]
    watts = [float(joules[group].sum() / max(seconds[group].sum(), 1e-9)) for group in groups]
    energy = np.cumsum([joules[group].sum() for group in groups]).tolist()
    return [float(finished[group].mean()) for group in groups], watts, energy


@dataclass(frozen=True)
class Account:
    """Cost of a campaign's jobs against its budget. None: not measured, or no limit."""

    jobs: list[Job]
    node_hours: float | None
    joules: float | None
    budget_node_hours: float | None
    budget_joules: float | None
    stopped: str


def account(ledger: LedgerState) -> Account:
    """This store's own jobs, and what those of its last campaign cost."""
    budget = ledger.last_budget
    last = ledger.of_campaign(budget.campaign if budget else None)
    began = replace(last, jobs=tuple(job for job in last.jobs if job.state != LedgerEvent.SUBMITTED))
    return Account(
        jobs=list(ledger.of_campaign().jobs),
        node_hours=began.node_seconds(time.time()) / 3600 if began.jobs else None,
        joules=began.joules,
        budget_node_hours=budget.node_hours if budget else None,
        budget_joules=budget.joules if budget else None,
        stopped=last.stops[-1].reason if last.stops else "",
    )

"""Jobs of the batch system and their cost against the budget, by the store's ledger."""

from __future__ import annotations

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import Account, account
from pipeline.reading.dashboard.look import Cell, html, moment, number, table, tiles
from pipeline.store.ledger import Job

HEADS = (
    "job", "chain", "state", "submitted", "began", "ended", "nodes", "node-hours", "joules", "commits",
    "missing then", "reason",
)  # fmt: skip
MOST = 200
"""Rows, the newest jobs."""


class Jobs:
    """Totals and a table."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> Account:
        """The ledger, added up."""
        return account(campaign.ledger)

    def show(self, facts: Account) -> None:
        """Cost against budget, then the jobs, newest first."""
        entries = [
            ("node-hours", number(facts.node_hours)),
            ("budget of node-hours", _limit(facts.budget_node_hours)),
            ("joules of ended jobs", number(facts.joules)),
            ("budget of joules", _limit(facts.budget_joules)),
        ]
        stopped = [("the campaign submits no further jobs", facts.stopped)] if facts.stopped else []
        rows = [_row(job) for job in reversed(facts.jobs[-MOST:])]
        jobs = table(HEADS, rows) if rows else "<p>none: the ledger has no entry</p>"
        self.root.text = f"<h2>Jobs, cost against budget</h2>{tiles([*entries, *stopped])}{jobs}"


def _limit(value: float | None) -> str:
    return "no limit" if value is None else number(value)


def _row(job: Job) -> list[Cell]:
    seconds = job.node_seconds
    return [
        job.job,
        str(job.chain),
        job.state,
        moment(job.submitted),
        "not yet" if job.began is None else moment(job.began),
        "not yet" if job.ended is None else moment(job.ended),
        job.nodes,
        None if seconds is None else seconds / 3600,
        job.joules,
        job.commits,
        job.missing if job.left is None else job.left,
        job.reason or "",
    ]

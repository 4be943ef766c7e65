"""Jobs of the batch system and their cost against the budget; workers; all runs of the store."""

from __future__ import annotations

import time

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import account
from pipeline.reading.dashboard.facts.runs import RunSummary
from pipeline.reading.dashboard.look import Columns, link, moment, number, table, table_of
from pipeline.reading.report import Section, Tiles
from pipeline.store.ledger import Job

MOST = 200
"""Rows: the newest jobs, the workers that were heard last."""

STEP = 10.0
"""Seconds in which silence is told."""

JOBS: Columns[Job] = {
    "job": lambda job: job.job,
    "chain": lambda job: "" if job.chain is None else str(job.chain),
    "state": lambda job: job.state,
    "submitted": lambda job: moment(job.submitted),
    "began": lambda job: "not yet" if job.began is None else moment(job.began),
    "ended": lambda job: "not yet" if job.ended is None else moment(job.ended),
    "nodes": lambda job: job.nodes or 1,
    "node-hours": lambda job: None if job.node_seconds is None else job.node_seconds / 3600,
    "joules": lambda job: job.joules,
    "commits": lambda job: job.commits,
    "missing then": lambda job: job.missing if job.left is None else job.left,
    "reason": lambda job: job.reason,
}
WORKERS = ("worker", "run", "chunks ended", "at work on", "last heard")
RUNS = ("run", "workflow", "began", "took", "how it ended", "chunks")


def jobs(campaign: Campaign) -> Section:
    """Cost against budget by the store's ledger, then the jobs, newest first."""
    facts = account(campaign.ledger)
    entries = [
        ("node-hours", number(facts.node_hours)),
        ("budget of node-hours", _limit(facts.budget_node_hours)),
        ("joules of ended jobs", number(facts.joules)),
        ("budget of joules", _limit(facts.budget_joules)),
    ]
    if facts.stopped:
        entries.append(("the campaign submits no further jobs", facts.stopped))
    newest = facts.jobs[-MOST:][::-1]
    listed = table_of(JOBS, newest) if newest else "none: the ledger has no entry"
    return Section("Jobs, cost against budget", "", [Tiles(entries), listed])


def _limit(value: float | None) -> str:
    return "no limit" if value is None else number(value)


def workers(campaign: Campaign) -> Section:
    """Workers of the runs that are followed: what each does, and when it was heard last."""
    heard = [
        (news, name, log.name)
        for log in campaign.runs.followed.values()
        for name, news in log.workers.items()
    ]
    now = time.time()
    rows = [
        [name, run, news.chunks, _work(news.at_work, run in campaign.driven), _silence(now - news.last)]
        for news, name, run in sorted(heard, key=lambda entry: -entry[0].last)[:MOST]
    ]
    return Section("Workers", "", [table(WORKERS, rows) if rows else "none was heard of"])


def _work(at_work: str, driven: bool) -> str:
    return at_work or "nothing" if driven else "nothing: its run is over"


def _silence(seconds: float) -> str:
    return "now" if seconds < STEP else f"{duration_text(STEP * (seconds // STEP))} ago"


def history(campaign: Campaign) -> Section:
    """All runs whose logs are kept, newest first; a run leads to its logs."""
    rows = [_run(run, run.run in campaign.driven) for run in campaign.runs.history()]
    return Section("Runs", "", [table(RUNS, rows) if rows else "none"])


def _run(run: RunSummary, driven: bool) -> list[object]:
    took = None if run.ended is None or run.began is None else duration_text(run.ended - run.began)
    how = f"stopped by {run.stopped}" if run.stopped else "ended"
    if run.ended is None:
        how = "goes on" if driven else "was interrupted"
    counts = ", ".join(f"{count} {state}" for state, count in run.counts.items()) or "nothing yet"
    name = link(run.run, f"logs/{run.run}")
    return [name, run.workflow, moment(run.began), took or "not known", how, counts]

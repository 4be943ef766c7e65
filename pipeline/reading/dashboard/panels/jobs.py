"""Jobs of the batch system and their cost against the budget; workers; all runs of the store."""

from __future__ import annotations

import time

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import Columns, link, moment, number, table, table_of
from pipeline.reading.report import Section, Tiles
from pipeline.running.run_state import RunState
from pipeline.store.ledger import Job, LedgerEvent

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
    last, budget = campaign.ledger.last_campaign, campaign.ledger.last_budget
    began = any(job.state != LedgerEvent.SUBMITTED for job in last.jobs)
    entries = [
        ("node-hours", number(last.node_seconds(time.time()) / 3600 if began else None)),
        ("budget of node-hours", _limit(budget.node_hours if budget else None)),
        ("joules of ended jobs", number(last.joules)),
        ("budget of joules", _limit(budget.joules if budget else None)),
    ]
    if last.stops and last.stops[-1].reason:
        entries.append(("the campaign submits no further jobs", last.stops[-1].reason))
    newest = campaign.ledger.of_campaign().jobs[-MOST:][::-1]
    listed = table_of(JOBS, newest) if newest else "no batch jobs"
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
    rows = [_run(name, run, name in campaign.driven) for name, run in campaign.runs.history().items()]
    return Section("Runs", "", [table(RUNS, rows) if rows else "none"])


def _run(name: str, run: RunState, driven: bool) -> list[object]:
    began = run.first.time if run.first.kind else None
    took = duration_text(run.last.time - run.first.time) if run.is_over else "not known"
    how = f"stopped by {run.last.stopped}" if run.last.stopped else "ended"
    if not run.is_over:
        how = "goes on" if driven else "was interrupted"
    counts = ", ".join(f"{count} {state}" for state, count in run.ends.items()) or "nothing yet"
    return [link(name, f"logs/{name}"), run.first.workflow or "unknown", moment(began), took, how, counts]

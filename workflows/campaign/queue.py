"""The jobs of campaigns in their batch system: the first ones, those that are alive, the end of all."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.batch import KINDS, State
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.store import Store
from stages.base.errors import InputError
from workflows.campaign.accounts import Accounts
from workflows.campaign.definition import FILE, Campaign, campaigns, label_of, place_of, read_campaign
from workflows.campaign.script import write_script

STOPPED = "stopped by `quarkline submit --stop`"


@dataclass(frozen=True)
class Submission:
    """Jobs that were submitted, or cancelled."""

    text: str
    """For people; the job's script for a dry run."""
    store: Path
    campaign: str | None = None
    """Name of the campaign, and of its jobs; null where nothing was submitted."""
    jobs: list[str] = field(default_factory=list)
    """Ids in the batch system."""
    missing: int | None = None
    """Chunks that are to be computed."""
    warnings: list[str] = field(default_factory=list)


def begin(campaign: Campaign) -> list[str]:
    """Submit the first jobs of all chains; returns their ids.

    Raises:
        InputError: the batch system refuses them; nothing is left.
    """
    campaign.write()
    ledger = Ledger(Store(campaign.store))
    ledger.add(
        LedgerEvent.BUDGET,
        campaign=campaign.name,
        node_hours=campaign.budget.node_hours,
        joules=campaign.budget.joules,
    )
    script = write_script(campaign)
    first = campaign.system.submit(script)
    jobs = [first] if campaign.chains == 1 else [f"{first}_{chain}" for chain in range(campaign.chains)]
    for chain, job in enumerate(jobs):
        campaign.note_submitted(job, chain, after=None)
    return jobs


def alive(store: Store, campaign: Campaign) -> dict[str, State]:
    """Jobs of a campaign that are queued or run, or of which nothing is known."""
    submitted = Accounts.of(Ledger(store).state(), campaign.name).submitted
    states = campaign.system.look(list(submitted))
    return {job: seen.state for job, seen in states.items() if seen.state != State.ENDED}


def campaign_lines(store: Store, complete: Collection[str]) -> list[str]:
    """The state of each workflow's last campaign, for people, by the ledger and the batch system.

    complete: workflows of which nothing is missing by their last plans, which may be older than a campaign.
    """
    ledger = Ledger(store).state()
    last = {name.rpartition("-")[0]: name for name in ledger.budgets if name}
    lines = []
    for label, name in last.items():
        try:
            campaign = read_campaign(place_of(store, name))
        except InputError as error:
            lines.append(f"campaign {name}: {error}")
            continue
        if campaign.site.kind not in KINDS:
            lines.append(f"campaign {name}: its batch system, {campaign.site.kind}, cannot be asked any more")
            continue
        accounts = Accounts.of(ledger, name)
        plans = [store.path / ".workflows" / f"{each}.json" for each in complete if label_of(each) == label]
        since = (campaign.place / FILE).stat().st_mtime
        is_complete = any(job.left == 0 for job in accounts.jobs) or any(
            plan.stat().st_mtime > since for plan in plans
        )
        hours, budget = accounts.ledger.node_seconds(time.time()) / 3600, campaign.budget.node_hours
        spent = f"{hours:.2f}{'' if budget is None else f' of {budget:.2f}'} node-hours"
        state = [] if is_complete else _state(store, campaign, accounts)
        lines.append(f"campaign {name}, {spent}: {'; '.join(state) or 'complete'}")
        lines += [
            f"job {job.job} went on with other code than the jobs before it ({job.upgrade}), by the same "
            "versions of all stages"
            for job in accounts.jobs
            if job.upgrade
        ]
    return lines


def _state(store: Store, campaign: Campaign, accounts: Accounts) -> Iterator[str]:
    """What its jobs do, and why chains submit no further ones."""
    states = campaign.system.look(list(accounts.submitted))
    told = {job.job: job for job in accounts.jobs}
    groups: dict[str, list[str]] = {}
    for job, seen in states.items():
        at_work = job in told and told[job].state == LedgerEvent.BEGAN
        ended = job in told and told[job].state == LedgerEvent.ENDED
        if seen.state == State.ALIVE:
            groups.setdefault("at work" if at_work else "ending" if ended else "waits", []).append(job)
        elif seen.state == State.UNKNOWN and not ended:
            groups.setdefault(f"at work or gone: {campaign.system.kind} does not answer here", []).append(job)
    for group, jobs in groups.items():
        yield f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(jobs)} {group}"
    if None in accounts.stopped:
        yield accounts.stopped[None]
    for chain, why in accounts.stopped.items():
        if chain is not None:
            yield f"chain {chain} ended: {why}"
    if not groups:
        if not accounts.stopped:
            yield _death(campaign, accounts)
        yield f"no job of it is left: `quarkline submit {campaign.workflow}` goes on"
        yield f"outputs are in {campaign.place}"


def _death(campaign: Campaign, accounts: Accounts) -> str:
    """How the last job of a campaign ended that nothing follows."""
    *_, last = accounts.submitted
    jobs = [job for job in accounts.jobs if job.job == last]
    if not jobs:
        before = f" after {accounts.submitted[last]}" if accounts.submitted[last] else ""
        return f"job {last}{before} ended before it began to work: it was cancelled, or died at its start"
    if jobs[-1].ended is None:
        return f"job {last} was killed: cancelled, out of memory or walltime, or its node was lost"
    return f"job {last} ended ({jobs[-1].reason}), and none follows it"


def refuse_second(store: Store) -> None:
    """Raise InputError where jobs of a campaign are at work on the store."""
    for campaign in campaigns(store):
        if jobs := alive(store, campaign):
            some = ", ".join(jobs)
            raise InputError(
                f"campaign {campaign.name} is at work on {store.path} (jobs {some}): stop it first by "
                "`quarkline submit WORKFLOW --stop`, or wait until it ends"
            )


def stop_all(store: Store) -> Submission:
    """Cancel all jobs of the store's campaigns; what is in work is given up, what is committed stays.

    Raises:
        InputError: there was no campaign, or a batch system does not take its jobs back.
    """
    found = campaigns(Store.existing(store))
    if not found:
        raise InputError(f"nothing was submitted for store {store.path}")
    ledger, cancelled = Ledger(store), list[str]()
    for campaign in found:
        jobs = list(alive(store, campaign))
        if None not in Accounts.of(ledger.state(), campaign.name).stopped:
            ledger.add(LedgerEvent.STOPPED, campaign=campaign.name, chain=None, reason=STOPPED)
        if jobs and not campaign.system.cancel(jobs):
            raise InputError(
                f"jobs {', '.join(jobs)} of campaign {campaign.name} cannot be cancelled: do it by hand"
            )
        cancelled += jobs
    text = f"cancelled jobs {', '.join(cancelled)}" if cancelled else "no job was queued or running"
    return Submission(f"{text}; what is committed stays in {store.path}", store.path, jobs=cancelled)

"""The jobs of campaigns in their batch system: the first ones, those that are alive, the end of all."""

from __future__ import annotations

from pipeline.running.clusters.batch import State
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.store import Store
from stages.errors import InputError
from workflows.campaign.accounts import Accounts
from workflows.campaign.definition import Campaign, campaigns
from workflows.campaign.script import write_script
from workflows.outputs.campaigns import SubmitOutput

STOPPED = "stopped by `quarkline submit --stop`"


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
    submitted = Accounts.of(Ledger(store).entries(), campaign.name).submitted
    states = campaign.system.look(list(submitted))
    return {job: seen.state for job, seen in states.items() if seen.state != State.ENDED}


def refuse_second(store: Store) -> None:
    """Raise InputError where jobs of a campaign are at work on the store."""
    for campaign in campaigns(store):
        if jobs := alive(store, campaign):
            some = ", ".join(jobs)
            raise InputError(
                f"campaign {campaign.name} is at work on {store.path} (jobs {some}): stop it first by "
                "`quarkline submit WORKFLOW --stop`, or wait until it ends"
            )


def stop_all(store: Store) -> SubmitOutput:
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
        if None not in Accounts.of(ledger.entries(), campaign.name).stopped:
            ledger.add(LedgerEvent.STOPPED, campaign=campaign.name, chain=None, reason=STOPPED)
        if jobs and not campaign.system.cancel(jobs):
            raise InputError(
                f"jobs {', '.join(jobs)} of campaign {campaign.name} cannot be cancelled: do it by hand"
            )
        cancelled += jobs
    text = f"cancelled jobs {', '.join(cancelled)}" if cancelled else "no job was queued or running"
    return SubmitOutput(
        text=f"{text}; what is committed stays in {store.path}", store=store.path, jobs=cancelled
    )

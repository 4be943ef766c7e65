"""A job of a campaign.

It submits its successor before it begins its work, to follow it however it ends: neither a kill nor the loss
of a node ends a campaign. What it computes it shares with the jobs of other chains. It ends in time for its
walltime, and takes its successor back once nothing is missing.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.batch import own_job
from pipeline.declare.text import counted, literal_lines
from pipeline.store.errors import StoreError
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.store import Store
from stages.base.errors import InputError
from workflows.campaign.accounts import Accounts
from workflows.campaign.definition import Campaign, read_campaign
from workflows.campaign.growth import as_submitted, grown
from workflows.campaign.script import BEGAN
from workflows.campaign.successor import Successor
from workflows.campaign.work import MISTAKE, Work, fault_text, work_of
from workflows.terminal import tell

CLOSING = 0.05
"""Share of a walltime that is kept for its end."""

LEAST_CLOSING, MOST_CLOSING = 8.0, 120.0
"""Bounds of that in seconds."""


def main(place: Path, chain: int, now: Callable[[], float] = time.time) -> int:
    """Be a job; returns its exit code, that of `quarkline run`, and 0 where nothing is to be done."""
    began = float(os.environ.get(BEGAN, now()))
    campaign = read_campaign(place)
    ledger = Ledger(Store.existing(campaign.store))
    written = campaign
    _, job, _ = own_job()
    campaign = as_submitted(written, ledger.entries(), job)
    work = work_of(campaign)
    accounts = Accounts.of(ledger.state(), campaign.name)
    left = accounts.seconds_left(campaign.budget, campaign.nodes, campaign.chains, now(), campaign.walltime)
    upgrade = accounts.upgrade(work.code)
    why = accounts.objection(job, chain, work.missing, left)
    if not why and upgrade and work.versions:
        why = f"its stages have other versions than the jobs before it ({work.versions}): submit again"
    if why:
        return _stop(ledger, campaign, chain, why)
    identity = {"campaign": campaign.name, "job": job or str(os.getpid()), "chain": chain}
    _enter(
        ledger,
        LedgerEvent.BEGAN,
        **identity,
        host=socket.gethostname(),
        nodes=campaign.nodes,
        walltime=campaign.walltime,
        missing=work.missing,
        code=work.code,
        upgrade=upgrade,
    )
    missing = work.fault if work.missing is None else f"{counted(work.missing, 'chunk')} missing"
    tell(f"job {job} of campaign {campaign.name}, chain {chain}: {missing}")
    if upgrade:
        tell(f"its code is not that of the jobs before it ({upgrade}), with the same versions of all stages")
    end = began + min(float(campaign.walltime), left)
    with Successor(campaign, ledger, chain, job, accounts) as successor:
        code, reason = _carried_out(work, end - now() - _closing(campaign.walltime))
        _enter(
            ledger,
            LedgerEvent.ENDED,
            **identity,
            seconds=now() - began,
            node_seconds=campaign.nodes * (now() - began),
            joules=work.joules(),
            commits=work.commits,
            missing=work_of(campaign).missing,
            reason=reason,
        )
        if code in work.FINAL:
            successor.take_back(everybody=code == work.COMPLETE)
        else:
            more, why = grown(written, campaign, work.failures, work.commits, work.out_of_time)
            if why:
                tell(why)
                successor.ask_for(more)
    return code


def _closing(walltime: float) -> float:
    return max(LEAST_CLOSING, min(MOST_CLOSING, CLOSING * walltime))


def _carried_out(work: Work, seconds: float) -> tuple[int, str]:
    try:
        return work.carry_out(max(1.0, seconds))
    except Exception as error:  # its successor is to know that it failed, by whatever
        tell(f"error: {error}", err=True)
        return MISTAKE, fault_text(error)


def _enter(ledger: Ledger, event: LedgerEvent, **facts: Any) -> None:
    """Write an entry, if that can be done: a job is there for its work."""
    try:
        ledger.add(event, **facts)
    except StoreError as error:
        tell(f"warning: {error}; the job goes on", err=True)


def _stop(ledger: Ledger, campaign: Campaign, chain: int, why: str) -> int:
    """Say why a chain ends, once."""
    accounts = Accounts.of(ledger.state(), campaign.name)
    if not accounts.stopped.keys() & {None, chain}:
        _enter(ledger, LedgerEvent.STOPPED, campaign=campaign.name, chain=chain, reason=why)
    tell(f"chain {chain} of campaign {campaign.name} ends here: {why}")
    return 0


def command(place: Path, chain: int) -> int:
    """Be a job, and print mistakes as a line."""
    try:
        return main(place, chain)
    except InputError as fault:
        print(literal_lines(f"error: {fault}"), file=sys.stderr)
        return MISTAKE


if __name__ == "__main__":  # of scripts that an earlier version has put into the queue
    sys.exit(command(Path(sys.argv[1]), int(sys.argv[2])))

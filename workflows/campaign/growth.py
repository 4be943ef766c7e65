"""More memory or walltime for the next job, where the lack of it was what this one failed by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.declare.duration import duration_text
from pipeline.declare.text import format_bytes
from pipeline.running.failures import Failure
from pipeline.running.session import DIED
from pipeline.store.ledger import LedgerEntry, LedgerEvent
from workflows.campaign.definition import Campaign

MORE_MEMORY, MORE_TIME = 1.5, 2.0
"""Factors from one job to the next."""

MOST = 4.0
"""Of what was written, at most: what fails with this much fails for another reason."""


def as_submitted(campaign: Campaign, entries: Iterable[LedgerEntry], job: str) -> Campaign:
    """The campaign with the memory and the walltime that a job of it was submitted with."""
    own = [entry for entry in entries if entry.event == LedgerEvent.SUBMITTED and entry.job == job]
    if not own:
        return campaign
    memory = campaign.site.memory if own[-1].memory is None else int(own[-1].memory)
    walltime = campaign.walltime if own[-1].walltime is None else int(own[-1].walltime)
    return replace(campaign, site=campaign.site.model_copy(update={"memory": memory}), walltime=walltime)


def grown(
    written: Campaign, now: Campaign, failures: Sequence[Failure], commits: int, out_of_time: bool
) -> tuple[Campaign, str]:
    """The next job's demands, and the reason; '' if nothing speaks for more.

    Args:
        written: as it was submitted at first.
        now: as this job was.
        failures: of this job.
        commits: chunks that it committed.
        out_of_time: True if it ended by its walltime.
    """
    died = sorted({failure.node for failure in failures if failure.error == DIED})
    first, memory = written.site.settled().memory, now.site.settled().memory
    if died and memory and first and memory < MOST * first:
        wanted = int(min(MORE_MEMORY * memory, MOST * first))
        why = f"workers died with chunks of {', '.join(died)}: the next job asks for {format_bytes(wanted)}"
        return replace(now, site=now.site.model_copy(update={"memory": wanted})), why
    if out_of_time and not commits and now.walltime < MOST * written.walltime:
        walltime = int(min(MORE_TIME * now.walltime, MOST * written.walltime))
        why = f"no chunk was done within the walltime: the next job asks for {duration_text(walltime)}"
        return replace(now, walltime=walltime), why
    return now, ""

"""A campaign by its ledger: what it has cost, and whether a chain of its jobs should go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.declare.duration import duration_text
from pipeline.store.lease import other_code
from pipeline.store.ledger import Job, LedgerState
from workflows.campaign.definition import Budget

FUTILE = 2
"""Jobs of a chain in a row that begin and bring nothing before it is given up."""

LEAST = 30.0
"""Seconds that a job is worth: with less left of the budget none begins."""

HOUR = 3600.0

NO_REASON = "it was stopped; nothing says why"


@dataclass(frozen=True)
class Accounts:
    """Jobs of a campaign.

    Args:
        ledger: the part of the store's that is of the campaign, with the jobs that began.
        submitted: ids of all that were submitted, with those that they wait for.
        demands: walltime and memory of each of these.
        stopped: why the campaign, or a chain of it, submits no further jobs; by chain, None for all.
    """

    ledger: LedgerState
    submitted: Mapping[str, str | None]
    demands: Mapping[str, tuple[float, float]]
    stopped: Mapping[int | None, str]

    @classmethod
    def of(cls, ledger: LedgerState, campaign: str) -> Accounts:
        """Accounts by the ledger of a store."""
        own = ledger.of_campaign(campaign)
        submitted = [job for job in own.jobs if job.submitted is not None]
        return cls(
            replace(own, jobs=tuple(job for job in own.jobs if job.began is not None)),
            {job.job: job.after for job in submitted},
            {job.job: (job.walltime or 0.0, job.memory or 0.0) for job in submitted},
            {s.chain: s.reason or NO_REASON for s in own.stops if isinstance(s.chain, int | None)},
        )

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Jobs that began, oldest first."""
        return self.ledger.jobs

    def waiting(self) -> list[str]:
        """Jobs that were submitted and have not begun."""
        begun = {job.job for job in self.jobs}
        return [job for job in self.submitted if job not in begun]

    def follower(self, job: str) -> str | None:
        """The job that was submitted to follow one; the last, if there are several."""
        followers = [each for each, after in self.submitted.items() if after == job]
        return followers[-1] if followers else None

    def seconds_left(self, budget: Budget, nodes: int, chains: int, now: float, walltime: float) -> float:
        """Seconds that each chain may take until the budget is spent, if all of them go on."""
        left = [float(walltime)]
        spent = self.ledger.node_seconds(now)
        if budget.node_hours is not None:
            left.append((HOUR * budget.node_hours - spent) / (nodes * chains))
        joules = self.ledger.joules
        if budget.joules is not None and joules and spent:
            power = joules / spent  # of a node
            left.append((budget.joules - joules) / (power * nodes * chains))
        return min(left)

    def upgrade(self, code: Mapping[str, str]) -> str:
        """Packages of other code than the last job's, with both digests; '' if there are none."""
        before = [job.code for job in self.jobs if job.code]
        return other_code(before[-1], code) if before else ""

    def objection(self, job: str, chain: int, missing: int | None, left: float) -> str:
        """Reason for a job of this chain not to begin; '' if nothing speaks against it.

        missing: chunks now, None if nobody can tell. left: seconds until the budget is spent. One that has
        more walltime or memory than those that brought nothing gets its trial: what they lacked may have been
        that.
        """
        for key in (None, chain):
            if key in self.stopped:
                return self.stopped[key]
        if left < LEAST:
            return f"the budget is spent: {duration_text(max(0.0, left))} are left for each chain"
        before = [job for job in self.jobs if job.chain == chain][-FUTILE:]
        futile = len(before) == FUTILE and all(
            each.missing == missing and not each.commits for each in before
        )
        if futile and not all(self._has_more(job, each.job) for each in before):
            reasons = "; ".join(f"{each.job}: {each.reason or 'it was killed'}" for each in before)
            return f"{FUTILE} jobs in a row brought nothing ({reasons})"
        return ""

    def _has_more(self, job: str, other: str) -> bool:
        """True if a job was submitted with more walltime or memory than another."""
        none = (0.0, 0.0)
        pairs = zip(self.demands.get(job, none), self.demands.get(other, none), strict=True)
        return any(mine > theirs for mine, theirs in pairs)

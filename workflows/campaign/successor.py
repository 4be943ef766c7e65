"""The job that follows a job: submitted as early as can be, taken back once nothing is left for it."""

from __future__ import annotations

import threading

from pipeline.batch import State
from pipeline.store.errors import StoreError
from pipeline.store.ledger import Ledger
from stages.base.errors import InputError
from workflows.campaign.accounts import Accounts
from workflows.campaign.definition import Campaign
from workflows.campaign.script import write_script
from workflows.terminal import tell

AGAIN = 30.0
"""Seconds between two attempts to submit it, doubled after each."""


class Successor:
    """The next job of a chain; submitted in the background while the block runs, for as often as it takes.

    Args:
        campaign: of the jobs.
        ledger: where it is written down.
        chain: of this job.
        job: id of this job, '' outside of a batch system.
        accounts: of the campaign as this job began. A job that was put back into the queue, or is submitted
            twice, has its successor already.
    """

    def __init__(self, campaign: Campaign, ledger: Ledger, chain: int, job: str, accounts: Accounts) -> None:
        self._campaign, self._ledger, self._chain, self._job = campaign, ledger, chain, job
        self._system = campaign.system
        known = accounts.follower(job)
        self._id = known if known and self._system.state(known) != State.ENDED else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_trying, daemon=True)

    def __enter__(self) -> Successor:
        if not self._submitted():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
            self._submitted()

    def take_back(self, *, everybody: bool) -> None:
        """Cancel it; everybody: and all others of the campaign that have not begun."""
        self._ended.set()
        mine = [self._id] if self._id else []
        accounts = Accounts.of(self._ledger.state(), self._campaign.name)
        waiting = [*dict.fromkeys([*accounts.waiting(), *mine])] if everybody else mine
        alive = [job for job, seen in self._system.look(waiting).items() if seen.state == State.ALIVE]
        if alive and not self._system.cancel(alive):
            tell(f"jobs {', '.join(alive)} have nothing to do and cannot be cancelled: they end at once")
        self._id = self._id or "none"

    def ask_for(self, campaign: Campaign) -> None:
        """Have it ask for what this says; as it was, if the batch system refuses that."""
        before, self._campaign = self._campaign, campaign
        old, self._id = self._id, None
        if not self._submitted():
            self._campaign, self._id = before, old
        elif old:
            self._system.cancel([old])

    def _keep_trying(self) -> None:
        pause = AGAIN
        while not self._ended.wait(pause) and not self._submitted():
            pause *= 2

    def _submitted(self) -> bool:
        """Submit it, unless that was done."""
        if self._id or not self._job:
            return True
        try:
            self._id = self._system.submit(write_script(self._campaign, self._chain), after=self._job)
            self._campaign.note_submitted(self._id, self._chain, self._job)
        except (InputError, OSError, StoreError) as error:
            if self._id is None:
                tell(f"the next job is not submitted yet: {error}")
                return False
            tell(f"warning: {error}; the ledger does not know the next job", err=True)
        tell(f"job {self._id} follows")
        return True

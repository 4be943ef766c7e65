"""The workers of a run as its driver sees them: who is there, who died, who is silent; bringing them back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client
from distributed.comm import CommClosedError
from distributed.core import Status

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, format_bytes
from pipeline.running.elastic import Elastic
from pipeline.running.event_log import EventLog
from pipeline.running.limits import Limits
from pipeline.running.stopping import StopRequest
from pipeline.worker.events import Event, EventKind

WAITING = 0.2
"""Seconds between two looks while there is no worker."""

REVIVAL = 10.0
"""Seconds between two attempts to bring lost workers back."""

REPLACING = 30.0
"""Seconds that a worker's nanny gets to replace its process."""


MORE_MEMORY = 4.0
"""Of a worker's share at most, for a task alone: what fails with this much fails for another reason."""


class Workforce:
    """Workers by address; a worker that is replaced has a new address.

    Args:
        client: of the cluster.
        log: where is said what is waited for.
        stop: asked when nobody comes back.
        limits: of patience.
        queued: True if workers are jobs of a batch system, which may take any time to begin.
    """

    def __init__(
        self, client: Client, log: EventLog, stop: StopRequest, limits: Limits, *, queued: bool = False
    ) -> None:
        self._client, self._log, self._stop, self.limits = client, log, stop, limits
        self._queued = queued
        now = time.monotonic()
        self._revived = now - REVIVAL
        self._absent_since: float | None = now
        self._said = now
        self._heartbeats: dict[str, tuple[float, float]] = {}
        """Per worker the time of its last heartbeat by the scheduler's clock, and by ours when it was new."""
        self._dismissed: set[str] = set()
        """Workers that left because there was no work."""
        self._vain = 0
        self._wanted = 1
        self.devices = 0.0
        """Most GPUs that a worker offered when last looked."""
        self._elastic = Elastic(client, log) if queued and client.cluster.bounds.elastic else None

    @property
    def count(self) -> int:
        """Number of workers when last looked."""
        return len(self._heartbeats)

    @property
    def present(self) -> bool:
        """True if there was a worker when last looked."""
        return self.count > 0

    def wait(self) -> None:
        """Wait for the first worker, or for a reason to stop."""
        while not self.present and not self._stop.check():
            self.look(())
            time.sleep(WAITING)

    def look(self, at_work: Collection[str]) -> set[str]:
        """Look after the workers; returns those that died since the last look.

        at_work: addresses of those that compute a chunk.
        """
        moment = time.monotonic()
        known = set(self._heartbeats)
        if not self._ask(moment):
            return set()
        died = known - set(self._heartbeats) - self._dismissed
        cluster = self._client.cluster
        wanted = cluster.wanted * cluster.each if self._queued else len(self._heartbeats)
        self._wanted = wanted if self._queued else max(self._wanted, wanted)
        self._count_vain(died, at_work)
        if len(self._heartbeats) < self._wanted or not self.present:
            self._revive(moment)
        if self._elastic:
            with self._log.guarded("a change of the number of jobs"):
                self._dismissed |= self._elastic.adjust(moment)
        self._mind_absence(moment)
        for worker, (_, heard) in self._heartbeats.items():
            if moment - heard > self.limits.silence:
                silent = f"worker {worker} gave no sign for {duration_text(moment - heard)}"
                self._log(Event(EventKind.NOTE, message=f"{silent}: it is replaced"))
                self.replace(worker)
        return died

    def note_work(self) -> None:
        """A chunk was begun or ended: workers are of use."""
        self._vain = 0

    def replace(self, worker: str) -> None:
        """End a worker, whatever it does, and have its nanny start another."""
        try:
            self._client.restart_workers([worker], timeout=REPLACING, raise_for_error=False)
        except (OSError, TimeoutError, ValueError, KeyError, RuntimeError) as error:
            self._log(Event(EventKind.NOTE, message=f"worker {worker} cannot be replaced: {error}"))
        known, _ = self._heartbeats.get(worker, (0.0, 0.0))
        if worker in self._heartbeats:  # not again before it was silent once more
            self._heartbeats[worker] = (known, time.monotonic())

    @contextmanager
    def memory_for_one(self) -> Iterator[None]:
        """While a task runs alone, its worker may take the shares of those that are idle beside it.

        That is so for workers of this machine, whose nannies watch over their memory in this process.
        """
        workers = self._client.cluster.workers.values() if self._client.cluster else ()
        watched = [w.memory_manager for w in workers if hasattr(w, "memory_manager")]
        shares = [(each, each.memory_limit) for each in watched if each.memory_limit]
        whole = sum(limit for _, limit in shares)
        if len(shares) > 1:
            most = min(whole, int(MORE_MEMORY * max(limit for _, limit in shares)))
            message = f"a task whose workers died runs alone, with up to {format_bytes(most)}"
            self._log(Event(EventKind.NOTE, message=message))
        for each, limit in shares:
            each.memory_limit = min(whole, int(MORE_MEMORY * limit))
        try:
            yield
        finally:
            for each, limit in shares:
                each.memory_limit = limit

    def say(self, message: str) -> None:
        """Say what is waited for, at most once in a while."""
        moment = time.monotonic()
        if moment - self._said >= self.limits.saying:
            self._said = moment
            self._log(Event(EventKind.WAITING, message=message))

    def _ask(self, moment: float) -> bool:
        """Take the scheduler's list of workers; False if it does not answer (futures then say why)."""
        try:
            listed = _workers_of(self._client)
        except (OSError, CommClosedError, TimeoutError, RuntimeError):
            return False
        self.devices = max((each["resources"].get("device", 0) for each in listed.values()), default=0)
        beats: dict[str, tuple[float, float]] = {}
        for address, worker in listed.items():
            beat, heard = self._heartbeats.get(address, (-1.0, moment))
            last = float(worker["last_seen"])
            beats[address] = (last, moment if last != beat else heard)
        self._heartbeats = beats
        return True

    def _count_vain(self, died: set[str], at_work: Collection[str]) -> None:
        self._vain += sum(worker not in at_work for worker in died)
        self._mind_vain(self._wanted)

    def _mind_vain(self, wanted: int) -> None:
        if self._vain > self.limits.vain_deaths * wanted:
            self._stop.ask(f"{self._vain} workers that ended before they began a chunk", grace=0.0)

    def _revive(self, moment: float) -> None:
        """Have the cluster start what it lost: Dask gives up workers that are not back within a while."""
        cluster = self._client.cluster
        if cluster is None or moment - self._revived < REVIVAL:
            return
        self._revived = moment
        for name, worker in list(cluster.workers.items()):
            if getattr(worker, "status", None) in (Status.failed, Status.closed):
                cluster.workers.pop(name, None)  # Dask would count it for ever
                if refusal := getattr(worker, "refusal", ""):
                    self._log(Event(EventKind.NOTE, message=f"{refusal}; it is tried again"))
        if not self._queued:
            cluster.scale(max(self._wanted, len(cluster.worker_spec)))
            return
        if lost := cluster.lost_jobs():
            for name in lost:
                cluster.workers.pop(name, None)
            why = "; ".join(sorted(set(lost.values())))
            message = f"{counted(len(lost), 'job')} submitted again, which the queue does not have ({why})"
            self._log(Event(EventKind.NOTE, message=message))
            self._vain += len(lost)
            self._mind_vain(self._wanted)
        cluster.restore()

    def _mind_absence(self, moment: float) -> None:
        if self.present:
            self._absent_since = None
            return
        if self._absent_since is None:
            self._absent_since = moment
        away = moment - self._absent_since
        where = "; its jobs wait in the queue or were lost, lost ones are submitted again" * self._queued
        self.say(f"no worker for {duration_text(away)}{where}")
        if away > self.limits.absence and not self._queued:
            self._stop.ask(f"lack of workers: none for {duration_text(away)}", grace=0.0)

    def __str__(self) -> str:
        return counted(len(self._heartbeats), "worker")


def _workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """The scheduler's workers, by address, with what it knows of each. Raises OSError where it is lost.

    `Client.scheduler_info` may name none: every two seconds the client asks for itself, for no workers, and
    what it hears then takes the place of an answer that is not read yet.
    """
    if client.scheduler is None:
        raise CommClosedError("the client has given its scheduler up")
    answer: dict[str, dict[str, dict[str, Any]]] = client.sync(client.scheduler.identity, n_workers=-1)
    return answer["workers"]

"""Jobs of a batch system that come and go with the work, within bounds."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.comm import CommClosedError

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted
from pipeline.running.event_log import EventLog
from pipeline.worker.events import Event, EventKind

IDLE = 60.0
"""Seconds without work, running or waiting in the queue, after which a job is ended."""


class Elastic:
    """Submits jobs where tasks wait, and ends those that have none.

    A job of several workers stays while one of them has work.

    Args:
        client: of a cluster whose jobs have bounds.
        log: where changes are said.
    """

    def __init__(self, client: Client, log: EventLog) -> None:
        self._client, self._log = client, log
        self._idle: dict[str, float] = {}
        """When each job was first seen without work."""
        self._begun = False

    def adjust(self, moment: float) -> set[str]:
        """Look at the work that there is; returns addresses of workers that were dismissed."""
        cluster = self._client.cluster
        try:
            tasks, workers = self._client.run_on_scheduler(load)
        except (OSError, CommClosedError, TimeoutError, RuntimeError):
            return set()
        self._begun = self._begun or tasks > 0
        if not self._begun:
            return set()
        bounds = cluster.bounds
        needed = -(-min(max(tasks, bounds.min), bounds.max) // cluster.each)
        if needed > cluster.wanted:
            more = counted(needed - cluster.wanted, "job")
            self._say(
                f"{more} submitted: {counted(tasks, 'task')} to do for {counted(cluster.wanted, 'job')}"
            )
            cluster.want(needed * cluster.each)
        idle = self._without_work(cluster.members(), workers, moment)
        surplus = idle[: max(0, cluster.wanted - needed)]
        if not surplus:
            return set()
        members = set().union(*(cluster.members()[job] for job in surplus))
        addresses = {address for name, (address, _) in workers.items() if name in members}
        self._say(
            f"{counted(len(surplus), 'job')} ended, without work for {duration_text(IDLE)}: "
            f"{counted(tasks, 'task')} to do"
        )
        if addresses:
            self._client.retire_workers(workers=sorted(addresses))
        cluster.dismiss(set(surplus))
        return addresses

    def _without_work(
        self, members: dict[str, set[str]], workers: dict[str, tuple[str, int]], moment: float
    ) -> list[str]:
        """Jobs that have had no work for long, first those that wait in the queue."""
        since = {}
        for job, names in members.items():
            if not any(workers[name][1] for name in names & workers.keys()):
                since[job] = self._idle.get(job, moment)
        self._idle = since
        long = [job for job, began in since.items() if moment - began >= IDLE]
        return sorted(long, key=lambda job: bool(members[job] & workers.keys()))

    def _say(self, message: str) -> None:
        self._log(Event(EventKind.NOTE, message=message))


def load(dask_scheduler: Any) -> tuple[int, dict[str, tuple[str, int]]]:
    """Tasks that could run now, and of each worker, by name, its address and the tasks that it has."""
    workers = {
        str(worker.name): (address, len(worker.processing))
        for address, worker in dask_scheduler.workers.items()
    }
    waiting = len(dask_scheduler.unrunnable) + len(dask_scheduler.queued)
    return waiting + sum(tasks for _, tasks in workers.values()), workers

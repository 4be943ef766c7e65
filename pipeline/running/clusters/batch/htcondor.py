"""HTCondor: its workers' jobs, by condor_q and condor_rm. Scripts with a head are no jobs of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.running.clusters.batch import OVER, UNSEEN, BatchSystem, Seen, State, Wish, ask
from stages.base.errors import InputError

ENDED = {"3", "4"}
"""Removed, completed."""


class HtCondor(BatchSystem):
    """HTCondor."""

    kind = "htcondor"
    submission = "condor_submit"
    cancellation = "condor_rm"
    prefix = "#"

    def options(self, wish: Wish) -> list[str]:
        """None: a job is described by another kind of file."""
        raise InputError("htcondor takes no job scripts with a head: let the driver submit its workers")

    def gpu_directives(self, wish: Wish) -> list[str]:
        """GPUs of a job, unless a directive asks for them."""
        named = wish.asks("request_gpus")
        return [f"request_gpus = {wish.gpus}"] if wish.gpus and not named else []

    def submit(self, script: Path, after: str | None = None) -> str:
        """Refuse: a job is described by another kind of file."""
        raise InputError(f"htcondor takes no job scripts such as {script}: let the driver submit its workers")

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask condor_q, which shows none that left the queue."""
        columns = ("ClusterId", "ProcId", "JobStatus", "JobBatchName")
        answer = ask("condor_q", *jobs, "-af", *columns) if jobs else None
        if answer is None or answer.code:
            return dict.fromkeys(jobs, UNSEEN)
        rows = [line.split(maxsplit=3) for line in answer.out.splitlines() if len(line.split()) > 3]
        shown = {
            f"{cluster}.{process}": OVER if status in ENDED else Seen(State.ALIVE, name)
            for cluster, process, status, name in rows
        }
        return {job: shown.get(job, OVER) for job in jobs}


SYSTEM = HtCondor()

"""Jobs that a run submitted, written down: those of a driver that was killed are cancelled later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from pipeline.batch import KINDS, State, batch_system
from pipeline.store.plain_files import text_of
from pipeline.store.store import Store

CERTIFICATES = ".dask-jobqueue.worker.*"
"""Files that jobs read, which dask-jobqueue removes at the end of a driver that is not killed."""

LINE = re.compile(r"(?:([a-z]+) )?(\d+(?:\.\d+)?)", flags=re.ASCII)
"""Batch system and id; the first lines that were written name no batch system, which was Slurm."""


@dataclass(frozen=True)
class JobList:
    """Jobs that a run submitted, `<store>/.runs/<run>/jobs`, a batch system and an id a line."""

    folder: Path

    @property
    def name(self) -> str:
        """The jobs' name in the queue, of this run alone."""
        return f"quarkline-{self.folder.name}"

    @property
    def logs(self) -> Path:
        """Folder of what jobs print."""
        return self.folder / "logs"

    @property
    def _path(self) -> Path:
        return self.folder / "jobs"

    def add(self, kind: str, job: str) -> None:
        """Write down a job that was submitted to a batch system."""
        with open(self._path, "a") as lines:
            lines.write(f"{kind} {job}\n")

    def ids(self) -> list[str]:
        """Ids that were written down; a line that was cut off or is no job is none."""
        return [match[2] for match in self._lines()]

    def kind(self) -> str:
        """The batch system that the jobs were submitted to."""
        return next((match[1] for match in self._lines()), None) or "slurm"

    def _lines(self) -> Iterator[re.Match[str]]:
        return filter(None, map(LINE.fullmatch, text_of(self._path).splitlines()))

    def clear(self) -> None:
        """Forget the jobs, once none of them is queued, and remove the certificates that they had."""
        self._path.unlink(missing_ok=True)
        for file in self.folder.glob(CERTIFICATES):
            file.unlink(missing_ok=True)


def job_lists(store: Store) -> list[JobList]:
    """All runs of a store with jobs that they have not ended themselves, oldest first."""
    lists = sorted(store.inside(".runs").glob("*/jobs"))
    return [JobList(path.parent) for path in lists if not path.parent.is_symlink()]


def cancel_left_jobs(store: Store, at_work: Set[str] = frozenset()) -> Iterator[str]:
    """Cancel what dead drivers left in the queue, and tell it. Only for drivers of the store.

    Only jobs that a run of this store wrote down, and that still have this run's name. at_work: runs of
    other drivers that share the store.
    """
    for jobs in job_lists(store):
        if jobs.folder.name in at_work:
            continue
        run, kind = jobs.folder.name, jobs.kind()
        if kind not in KINDS:
            yield f"jobs {', '.join(jobs.ids())} of run {run} may still be queued, and {kind} cannot be asked"
            continue
        system = batch_system(kind)
        seen = system.look(jobs.ids())
        silent = [job for job, each in seen.items() if each.state == State.UNKNOWN]
        left = [job for job, each in seen.items() if each.state == State.ALIVE and each.name == jobs.name]
        if left and not system.cancel(left):
            yield f"jobs {', '.join(left)} of run {run} are queued still, and {system.cancellation} fails"
            continue
        if left:
            yield f"cancelled jobs {', '.join(left)}, which run {run} had left in the queue"
        if silent:
            yield f"jobs {', '.join(silent)} of run {run} may still be queued, and {kind} does not answer"
            continue
        jobs.clear()

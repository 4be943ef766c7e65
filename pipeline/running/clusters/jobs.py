"""Jobs of Slurm that a run submitted, written down: those of a driver that was killed are cancelled later."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.store import Store

ANSWER = 30.0
"""Seconds that Slurm gets to answer."""

CERTIFICATES = ".dask-jobqueue.worker.*"
"""Files that jobs read, which dask-jobqueue removes at the end of a driver that is not killed."""


@dataclass(frozen=True)
class JobList:
    """Jobs that a run submitted, `<store>/.runs/<run>/jobs`, one id a line."""

    folder: Path

    @property
    def name(self) -> str:
        """The jobs' name in Slurm, of this run alone."""
        return f"quarkline-{self.folder.name}"

    @property
    def _path(self) -> Path:
        return self.folder / "jobs"

    def add(self, job: str) -> None:
        """Write down a job that was submitted."""
        with open(self._path, "a") as lines:
            lines.write(f"{job}\n")

    def ids(self) -> list[str]:
        """Ids that were written down; a line that was cut off or is no number is none."""
        try:
            return [line for line in self._path.read_text().splitlines() if line.isascii() and line.isdigit()]
        except OSError:
            return []

    def clear(self) -> None:
        """Forget the jobs, once none of them is queued, and remove the certificates that they had."""
        self._path.unlink(missing_ok=True)
        for file in self.folder.glob(CERTIFICATES):
            file.unlink(missing_ok=True)


def job_lists(store: Store) -> list[JobList]:
    """All runs of a store with jobs that they have not ended themselves, oldest first."""
    return [JobList(path.parent) for path in sorted((store.path / ".runs").glob("*/jobs"))]


def queued_jobs() -> dict[str, str] | None:
    """Names of this user's jobs, by id; None if Slurm does not answer or is not here."""
    command = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i %j"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if len(line.split()) > 1)


def cancel_left_jobs(store: Store, at_work: Set[str] = frozenset()) -> Iterator[str]:
    """Cancel what dead drivers left in the queue, and tell it. Only for drivers of the store.

    Only jobs that a run of this store wrote down, and that still have this run's name. at_work: runs of
    other drivers that share the store.
    """
    lists = [jobs for jobs in job_lists(store) if jobs.folder.name not in at_work]
    queued = queued_jobs() if lists else None
    for jobs in lists:
        if queued is None:
            written = ", ".join(jobs.ids())
            yield f"jobs {written} of run {jobs.folder.name} may be queued still, and squeue does not answer"
            continue
        left = [job for job in jobs.ids() if queued.get(job) == jobs.name]
        if left and not _cancelled(left):
            yield f"jobs {', '.join(left)} of run {jobs.folder.name} are queued still, and scancel fails"
            continue
        if left:
            yield f"cancelled jobs {', '.join(left)}, which run {jobs.folder.name} had left in the queue"
        jobs.clear()


def _cancelled(jobs: list[str]) -> bool:
    try:
        return not subprocess.run(["scancel", *jobs], capture_output=True, timeout=ANSWER).returncode
    except (OSError, subprocess.SubprocessError):
        return False

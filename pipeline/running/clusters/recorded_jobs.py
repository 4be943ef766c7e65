"""Clusters of dask-jobqueue whose jobs are written down, missed when they are lost, and held in bounds."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from distributed.core import Status

from pipeline.batch import ANSWER, State, batch_system
from pipeline.declare.duration import duration_text
from pipeline.running.clusters.jobs import JobList
from pipeline.running.clusters.remote import workers_of_gpus
from pipeline.running.clusters.section import Workers

Base: Any = object
"""A class of dask-jobqueue, which need not be installed: `recorded` names it."""


def recorded(base: Any, kind: str) -> Any:
    """A class of clusters made of one of dask-jobqueue's."""
    job = type("RecordedJob", (RecordedJob, base.job_cls), {"kind": kind})
    return type("Jobs", (Jobs, base), {"kind": kind, "job_cls": job})


class RecordedJob(Base):
    """A job that is written down once it is submitted."""

    kind: str
    """Of its batch system."""
    jobs: JobList | None = None
    workers = 1
    """That own GPUs."""
    gpus_per_worker = 1
    refusal = ""
    _command_template: str

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.workers > 1:
            name, each = shlex.quote(self.name), self.gpus_per_worker
            self._command_template = workers_of_gpus(self._command_template, name, self.workers, each)

    async def start(self) -> None:
        try:
            await asyncio.wait_for(super().start(), ANSWER)
        except (RuntimeError, OSError, ValueError, TimeoutError) as error:
            self.refusal = " ".join(str(error).split()) or f"no answer within {duration_text(ANSWER)}"
            self.status = Status.running  # as Dask wants it; `lost_jobs` tells what became of it
        if self.jobs and self.job_id:
            self.jobs.add(self.kind, self.job_id)

    async def close(self) -> None:
        await super().close()
        self.status = Status.closed


class Jobs(Base):
    """Jobs of one run, each with `each` workers; gpus_per_worker: of each of these."""

    kind: str
    """Of their batch system."""
    job_cls: Any
    """The class of a single one."""
    new_spec: dict[str, Any]

    def __init__(self, jobs: JobList | None, each: int, gpus_per_worker: int = 1, **options: Any) -> None:
        self.each, self.bounds, self.wanted = each, Workers(min=1, max=1), 0
        self._missing: set[str] = set()
        workers = each if options["processes"] == 1 else 1
        own = {"jobs": jobs, "workers": workers, "gpus_per_worker": gpus_per_worker}
        job = type("Job", (self.job_cls,), own)
        super().__init__(job_cls=job, **options)
        if workers > 1:
            self.new_spec = {**self.new_spec, "group": [f"-{number}" for number in range(workers)]}

    def hold(self, bounds: Workers) -> None:
        """Hold a number of workers, as many as may be to begin with."""
        self.bounds = bounds
        self.want(bounds.max)

    def want(self, workers: int) -> None:
        """Submit jobs for so many workers, where there are fewer; none is ended."""
        self.wanted = max(len(self.worker_spec), -(-workers // self.each))
        self.scale(jobs=self.wanted)

    def restore(self) -> None:
        """Submit again what is wanted and has no job."""
        self.scale(jobs=self.wanted)

    def members(self) -> dict[str, set[str]]:
        """Names of the workers of each job that is wanted."""
        return {
            name: {f"{name}{suffix}" for suffix in spec.get("group", ("",))}
            for name, spec in self.worker_spec.items()
        }

    def dismiss(self, names: set[str]) -> None:
        """End jobs that are not wanted any more."""
        self.wanted -= len(names & self.worker_spec.keys())
        for name in names:
            self.worker_spec.pop(name, None)
        self.scale(jobs=self.wanted)

    def lost_jobs(self) -> dict[str, str]:
        """Workers without a job, and why: refused, or over at two looks in a row."""
        lost = {name: job.refusal for name, job in self.workers.items() if job.refusal}
        ids = {name: job.job_id for name, job in self.workers.items() if job.job_id}
        seen = batch_system(self.kind).look(list(ids.values()))
        missing = {name for name, job in ids.items() if seen[job].state == State.ENDED}
        lost |= dict.fromkeys(sorted(missing & self._missing), "cancelled, or ended early")
        self._missing = missing
        for name in lost:
            self.workers[name].status = Status.failed
        return lost

    def remove_certificates(self) -> None:
        """Remove the files that jobs read, of which this object holds the handles."""
        for name, file in vars(self).items():
            if name.startswith("_job_") and hasattr(file, "close"):
                file.close()

"""Workers as Slurm jobs, by dask-jobqueue."""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dask
from distributed import Client
from distributed.core import Status

from pipeline.running.clusters import Demand
from pipeline.running.clusters.jobs import ANSWER, JobList, queued_jobs
from pipeline.running.clusters.local import scheduler_options, unless_stopped, worker_environment
from pipeline.running.dashboard import HOST, Dashboard
from pipeline.worker.lifetime import PATIENCE, Watchdog
from stages.errors import InputError

SILENT_WORKER = "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES"
"""Of a worker's web server, which listens whether it has something to say or not."""


@dataclass(frozen=True)
class Slurm:
    """One job per worker; the scheduler is in the driver, on the login or batch node that runs it.

    Both talk to those alone who hold the run's certificates, which jobs read from files of mode 600 in the
    run's folder of the store. The dashboard listens on the driver's machine alone, and shows its pages to who
    knows the run's secret.

    Args:
        workers: number of jobs, each one worker; no more than have work.
        cores: CPU cores per job, used by the kernels' own threads.
        memory: per job, as Slurm writes it.
        walltime: per job; jobs that end while work is left are submitted again, and chunks that were in
            flight are computed by others.
        queue, account: where to submit.
        backend: 'cuda' if jobs have a GPU each (`directives=("--gpus=1",)` asks for it).
        directives: further `#SBATCH` options.
        prologue: shell commands before the worker starts (modules, environments).
        dashboard_port: where the dashboard listens on 127.0.0.1, any free port by default.
    """

    workers: int | None = None
    cores: int = 1
    memory: str = "4GB"
    walltime: str = "01:00:00"
    queue: str | None = None
    account: str | None = None
    backend: str = "cpu"
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = field(default=())
    dashboard_port: int = 0

    @property
    def memory_limit(self) -> None:
        """None: the batch system watches over the memory of its jobs."""

    @property
    def queued(self) -> bool:
        """True: its workers are jobs that wait for their turn."""
        return True

    @property
    def devices(self) -> None:
        """None: GPUs of other machines are not known here."""

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Submit the jobs of the workers, and end them with the block.

        Raises:
            InputError: dask-jobqueue is not installed, or Slurm is not here.
        """
        kind = _cluster_class()
        if shutil.which("sbatch") is None:
            raise InputError(
                "the slurm cluster submits jobs by sbatch, which is not on this machine's PATH: start the "
                "run where jobs are submitted, or on this machine's own processors with --workers N"
            )
        with closing(Dashboard(self.dashboard_port)) as dashboard, dask.config.set(dashboard.settings):
            options = self.options(dashboard, demand.jobs)
            cluster = unless_stopped(partial(kind, demand.jobs, **options), demand.stopped)
            with cluster, Client(cluster, set_as_default=False) as client:
                cluster.scale(jobs=min(self.workers or demand.of_use, demand.of_use))
                client.register_plugin(Watchdog())
                yield client
            cluster.remove_certificates()
        if demand.jobs:
            demand.jobs.clear()

    def options(self, dashboard: Dashboard | None = None, jobs: JobList | None = None) -> dict[str, Any]:
        """Options for dask-jobqueue."""
        variables = {**worker_environment(self.cores, self.backend), SILENT_WORKER: "[]"}
        exports = [f"export {name}={value}" for name, value in variables.items()]
        worker = ["--nthreads", "1", "--resources", "device=1", "--memory-limit", "0"]
        scheduler = scheduler_options(dashboard) if dashboard else {"dashboard_address": f"{HOST}:0"}
        shared = {"job_name": jobs.name, "shared_temp_directory": str(jobs.folder)} if jobs else {}
        return {
            "cores": self.cores,
            "processes": 1,
            "memory": self.memory,
            "walltime": self.walltime,
            "queue": self.queue,
            "account": self.account,
            "death_timeout": PATIENCE,
            "security": True,
            "scheduler_options": scheduler,
            "job_extra_directives": list(self.directives),
            "job_script_prologue": [*exports, *self.prologue],
            "worker_extra_args": [*worker, "--no-dashboard", "--dashboard-address", f"{HOST}:0"],
            **shared,
        }


def _cluster_class() -> Any:
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise InputError(
            f"the slurm cluster needs dask-jobqueue ({error}): pip install 'quarkline[slurm]'"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # the import takes it away, and ends the process with code 0

    class RecordedJob(SLURMCluster.job_cls):  # type: ignore[misc]
        """A job that is written down once it is submitted."""

        jobs: JobList | None = None
        refusal = ""

        async def start(self) -> None:
            try:
                await asyncio.wait_for(super().start(), ANSWER)
            except (RuntimeError, OSError, ValueError, TimeoutError) as error:
                self.refusal = " ".join(str(error).split()) or f"no answer within {ANSWER:g} s"
                self.status = Status.running  # as Dask wants it; `lost_jobs` tells what became of it
            if self.jobs and self.job_id:
                self.jobs.add(self.job_id)

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed

    class Jobs(SLURMCluster):  # type: ignore[misc]
        """Jobs of one run."""

        def __init__(self, jobs: JobList | None, **options: Any) -> None:
            self._missing: set[str] = set()
            super().__init__(job_cls=type("Job", (RecordedJob,), {"jobs": jobs}), **options)

        def lost_jobs(self) -> dict[str, str]:
            """Workers without a job, and why: refused, or unknown to Slurm at two looks in a row."""
            lost = {name: job.refusal for name, job in self.workers.items() if job.refusal}
            if (queued := queued_jobs()) is not None:
                jobs = {name: job.job_id for name, job in self.workers.items() if job.job_id}
                missing = {name for name, job in jobs.items() if job not in queued}
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

    return Jobs

"""Workers as jobs of a batch system, by dask-jobqueue; the site's own configuration of it is the default."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
from distributed import Client

from pipeline.running.clusters import Demand, Devices, Remote
from pipeline.running.clusters.batch import Wish, batch_system, clock
from pipeline.running.clusters.jobs import JobList
from pipeline.running.clusters.local import NO_EMPTY_PATH, unless_stopped
from pipeline.running.clusters.recorded_jobs import recorded
from pipeline.running.clusters.site import Site, Workers
from pipeline.running.clusters.worker_command import WORKER_ARGUMENTS, exports
from pipeline.running.watching import HOST, watched
from pipeline.worker.lifetime import Watchdog
from stages.base.errors import InputError

CLASSES = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "lsf": "LSFCluster",
    "sge": "SGECluster",
    "htcondor": "HTCondorCluster",
    "oar": "OARCluster",
}
PROJECTS = ("lsf", "sge", "oar")
"""Kinds of which dask-jobqueue names the account a project."""


@dataclass(frozen=True)
class JobQueue(Remote):
    """Jobs of one worker, or of one for each GPU or several; the scheduler is in the driver, where that runs.

    Both talk to those alone who hold the run's certificates, which jobs read from files of mode 600 in the
    run's folder of the store. The dashboard listens on the driver's machine alone, and shows its pages to who
    knows the run's secret. Jobs that end while work is left are submitted again, and chunks that were in
    flight are computed by others.

    Args:
        site: kind, and what is written of its jobs.
    """

    site: Site

    @property
    def backend(self) -> str:
        """'cuda' if the jobs' workers have GPUs."""
        return self.site.backend

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker."""
        return self.site.gpus_per_worker

    @property
    def devices(self) -> Devices | None:
        """GPUs of its jobs or hosts, where their memory is written down."""
        return self.site.devices

    @property
    def queued(self) -> bool:
        """True: its workers are jobs that wait for their turn."""
        return True

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Submit the jobs of the workers, and end them with the block.

        Raises:
            InputError: dask-jobqueue is not installed, the batch system is not here, or nobody says how many
                workers, cores or bytes a job has.
        """
        kind, system = cluster_class(self.site.kind), batch_system(self.site.kind)
        if not system.here:
            raise InputError(
                f"the {system.kind} cluster submits jobs by {system.submission}, which is not on this "
                "machine's PATH: start the run where jobs are submitted, or on this machine's own processors "
                "by --cluster local"
            )
        if self.site.workers is None:
            raise InputError(
                f"how many workers are {system.kind} jobs to hold at most? Write `workers` in the section "
                "`cluster`, or --workers N"
            )
        with watched(demand.pages) as scheduler:
            options = self.options(scheduler, demand.jobs)
            try:
                each = (self.site.settled().each, self.site.gpus_per_worker)
                make = partial(kind, demand.jobs, *each, **options)
                cluster = unless_stopped(make, demand.stopped)
            except ValueError as error:
                raise InputError(
                    f"no {system.kind} job can be made: {' '.join(str(error).split())} Write it in the "
                    "section `cluster`, or in the site's configuration of dask-jobqueue"
                ) from None
            with cluster, Client(cluster, set_as_default=False) as client:
                cluster.hold(within(self.site.workers, demand.of_use))
                client.register_plugin(Watchdog())
                yield client
            cluster.remove_certificates()
        if demand.jobs:
            demand.jobs.clear()

    def options(self, scheduler: dict[str, Any] | None = None, jobs: JobList | None = None) -> dict[str, Any]:
        """Options for dask-jobqueue: what is written, and what a run needs; the rest is the site's."""
        site, settled, kind = self.site, self.site.settled(), self.site.kind
        own = scheduler or {"dashboard_address": f"{HOST}:0"}
        configured = partial(_configured, kind)
        written = {
            "cores": site.cores,
            "memory": None if site.memory is None else f"{site.memory}B",
            "walltime": site.walltime and _walltime(kind, site.walltime),
            "queue": site.partition,
            "project" if kind in PROJECTS else "account": site.account,
            "interface": site.interface,
            "python": settled.interpreter if site.container or site.python else None,
            "job_name": jobs and jobs.name,
            "shared_temp_directory": jobs and str(jobs.folder),
            "log_directory": configured("log-directory") or (jobs and str(jobs.logs)),
        }
        return {
            **{option: value for option, value in written.items() if value is not None},
            **_request(settled, jobs),
            "processes": 1 if settled.gpus else settled.each,
            "security": True,
            "scheduler_options": {**(configured("scheduler-options") or {}), **own},
            "job_script_prologue": [*exports(settled), *(settled.prologue or ()), NO_EMPTY_PATH],
            "worker_extra_args": [*(configured("worker-extra-args") or ()), *WORKER_ARGUMENTS],
        }


def within(workers: Workers, of_use: int) -> Workers:
    """Bounds that hold no worker who would never have work."""
    most = min(workers.max, of_use)
    return Workers(min(workers.min, most), most)


def _request(site: Site, jobs: JobList | None) -> dict[str, Any]:
    """Directives, with those that ask for GPUs in the words of the batch system."""
    system = batch_system(site.kind)
    name = jobs.name if jobs else ""
    wish = Wish(name, "", gpus=site.gpus or 0, cores=site.cores, memory=site.memory)
    wish = replace(wish, directives=site.directives or ())
    directives = [*system.gpu_directives(wish), *wish.directives]
    if site.kind == "htcondor":
        named = {"batch_name": name} if name else {}
        pairs = (directive.partition("=")[::2] for directive in directives)
        return {"job_extra_directives": {**named, **{key.strip(): value.strip() for key, value in pairs}}}
    selected = [directive for directive in directives if "select=" in directive]
    skipped = {"job_directives_skip": ["select="]} if site.kind == "pbs" and selected else {}
    return {**({"job_extra_directives": directives} if directives else {}), **skipped}


def _walltime(kind: str, seconds: int) -> str:
    return clock(60 * -(-seconds // 60))[:-3] if kind == "lsf" else clock(seconds)


def _configured(kind: str, key: str) -> Any:
    return dask.config.get(f"jobqueue.{kind}.{key}", None)


def cluster_class(kind: str) -> Any:
    """The class of dask-jobqueue for a kind, made to write down its jobs. Raises InputError without it."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ImportError as error:
        raise InputError(
            f"the {kind} cluster needs dask-jobqueue ({error}): pip install 'quarkline[slurm]'"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # the import takes it away, and ends the process with code 0
    return recorded(getattr(dask_jobqueue, CLASSES[kind]), kind)

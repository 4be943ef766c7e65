"""Workers as jobs of a batch system, by dask-jobqueue; the site's own configuration of it is the default."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.batch import batch_system
from pipeline.running.clusters import Demand
from pipeline.running.clusters.jobs import JobList
from pipeline.running.clusters.local import unless_stopped
from pipeline.running.clusters.remote import WORKER_ARGUMENTS, Remote, opening
from pipeline.running.clusters.section import Workers
from pipeline.running.limits import HOST
from stages.base.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

CONFIGURED = ("log-directory", "scheduler-options", "worker-extra-args")
"""Keys of the site's configuration of dask-jobqueue that are not replaced by what a run needs, but joined."""


@dataclass(frozen=True)
class JobQueue(Remote):
    """Jobs of one worker, or of one for each GPU or several; the scheduler is in the driver, where that runs.

    Both talk to those alone who hold the run's certificates, which jobs read from files of mode 600 in the
    run's folder of the store. The dashboard listens on the driver's machine alone, and shows its pages to who
    knows the run's secret. Jobs that end while work is left are submitted again, and chunks that were in
    flight are computed by others.
    """

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
        from distributed import Client

        from pipeline.running.watching import watched
        from pipeline.worker.plugins import Watchdog

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

    def options(
        self, scheduler: dict[str, Any] | None = None, jobs: JobList | None = None
    ) -> dict[str, object]:
        """Options for dask-jobqueue: what is written, and what a run needs; the rest is the site's."""
        import dask

        site, system = self.site.settled(), batch_system(self.site.kind)
        configured = {key: dask.config.get(f"jobqueue.{system.kind}.{key}", None) for key in CONFIGURED}
        written = {
            "cores": site.cores,
            "memory": None if site.memory is None else f"{site.memory}B",
            "walltime": system.clock(site.walltime) if site.walltime else None,
            "queue": site.partition,
            system.account_word: site.account,
            "interface": site.interface,
            "python": site.interpreter,
            "job_name": jobs and jobs.name,
            "shared_temp_directory": jobs and str(jobs.folder),
            "log_directory": configured["log-directory"] or (jobs and str(jobs.logs)),
        }
        own = scheduler or {"dashboard_address": f"{HOST}:0"}
        return {
            **{option: value for option, value in written.items() if value is not None},
            **system.dask_directives(site.job("", "")),
            "processes": 1 if site.gpus else site.each,
            "security": True,
            "scheduler_options": {**(configured["scheduler-options"] or {}), **own},
            "job_script_prologue": opening(site),
            "worker_extra_args": [*(configured["worker-extra-args"] or ()), *WORKER_ARGUMENTS],
        }


def within(workers: Workers, of_use: int) -> Workers:
    """Bounds that hold no worker who would never have work."""
    most = min(workers.max, of_use)
    return Workers(min=min(workers.min, most), max=most)


def cluster_class(kind: str) -> Any:
    """The class of dask-jobqueue for a kind, made to write down its jobs. Raises InputError without it."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue

        from pipeline.running.clusters.recorded_jobs import recorded
    except ImportError as error:
        raise InputError(
            f"the {kind} cluster needs dask-jobqueue ({error}): "
            "pip install -e '.[slurm]' in quarkline's checkout"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # the import takes it away, and ends the process with code 0
    return recorded(getattr(dask_jobqueue, batch_system(kind).dask_class), kind)

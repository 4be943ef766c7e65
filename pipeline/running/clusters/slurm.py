"""Workers as Slurm jobs, by dask-jobqueue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from pipeline.running.clusters import Demand
from pipeline.running.clusters.local import worker_environment
from pipeline.running.monitor import Monitor
from pipeline.worker.lifetime import PATIENCE, Watchdog
from stages.errors import InputError


@dataclass(frozen=True)
class Slurm:
    """One job per worker; the scheduler is in the driver, on the login or batch node that runs it.

    Both talk to those alone who hold the run's certificates, which jobs read from files of mode 600 in the
    folder where the driver was started. The dashboard listens on the driver's machine alone.

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
        """Submit the jobs of the workers, and end them with the block."""
        with _cluster_class()(**self.options()) as cluster, Client(cluster, set_as_default=False) as client:
            cluster.scale(jobs=min(self.workers or demand.of_use, demand.of_use))
            client.register_plugin(Watchdog())
            client.register_plugin(Monitor())
            yield client

    def options(self) -> dict[str, Any]:
        """Options for dask-jobqueue."""
        variables = worker_environment(self.cores, self.backend)
        exports = [f"export {name}={value}" for name, value in variables.items()]
        return {
            "cores": self.cores,
            "processes": 1,
            "memory": self.memory,
            "walltime": self.walltime,
            "queue": self.queue,
            "account": self.account,
            "death_timeout": PATIENCE,
            "security": True,
            "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
            "job_extra_directives": list(self.directives),
            "job_script_prologue": [*exports, *self.prologue],
            "worker_extra_args": ["--nthreads", "1", "--resources", "device=1", "--memory-limit", "0"],
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
    return SLURMCluster

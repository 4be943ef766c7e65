"""Workers on this machine, one task thread each, kernels threaded inside."""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.declare.text import counted
from pipeline.running.clusters import SAFE_PATH, Cluster, Demand, StartInterruptedError
from pipeline.running.clusters.guard import remedy_of_failed_start
from pipeline.running.limits import HOST
from pipeline.running.stopping import start_tracker
from pipeline.worker.memory import REUSING
from stages.base.errors import InputError
from stages.base.gpus import GPUS_PER_WORKER
from stages.base.host_memory import MEMORY_LIMIT

if TYPE_CHECKING:
    from distributed import Client

ALLOWED_DEATHS = 2
"""Workers that may die under a task before it is set aside."""

MEMORY_SHARE = 0.8
"""Of the memory that this process may use (a container may have less than its machine)."""

SETTINGS = {
    "distributed.scheduler.allowed-failures": ALLOWED_DEATHS,
    "distributed.scheduler.rootish-taskgroup-dependencies": 1,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.deploy.lost-worker-timeout": "45s",
}
"""Tasks that depend on anything go where that is (by default, not if it is little). Nothing bulky lives in
Dask's own memory, so that there is nothing to spill. A worker that takes more memory than its limit is ended
by its nanny. One that died may take long to start again (Python on a busy file system, a GPU's context):
after this time Dask gives its nanny up, and the run starts another."""

LEAK_SHARE = 0.9
"""Of the memory that this process may use, for all workers together, before one is ended."""

MARGIN = 1.25
"""Of a task's projected memory: what its worker takes beside it."""


LOOK = 0.1
"""Seconds between two looks at the run's reasons to stop while its cluster starts."""

HANDLES, HANDLES_OF_A_WORKER = 24, 12
"""Files that a driver has open, measured: on its own, and for each worker that it owns."""


@dataclass(frozen=True)
class Local(Cluster):
    """One-thread workers on this machine, as many as cores, or fewer with more kernel threads each.

    Args:
        workers: number of worker processes, no more of which start than have work; by default as many as
            have work and memory.
    """

    workers: int | None = None
    backend: str = "cpu"

    @property
    def memory_limit(self) -> int:
        """Bytes of this machine, or of the container that this process is in."""
        return int(MEMORY_LIMIT)

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Start workers on this machine, and end them with the block."""
        from dask.system import CPU_COUNT
        from distributed import LocalCluster

        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")
        workers = min(self.workers, demand.of_use) if self.workers else default_workers(CPU_COUNT, demand)
        options = {"n_workers": workers, "threads_per_worker": 1, "resources": {"device": 1}}
        environment = worker_environment(max(1, CPU_COUNT // workers), self.backend)
        with started(LocalCluster, options, environment, demand) as client:
            yield client


def default_workers(cores: int, demand: Demand) -> int:
    """Number of workers: one per core, but no more than there is work and memory for."""
    fitting = int(MEMORY_SHARE * MEMORY_LIMIT // demand.memory) if demand.memory else cores
    return max(1, min(cores, demand.of_use, fitting))


@contextmanager
def started(
    kind: Any, options: dict[str, Any], environment: dict[str, str], demand: Demand
) -> Iterator[Client]:
    """A cluster that this process owns, with a client; both end with the block.

    It listens on this machine alone, and talks to those who hold certificates that are made here, for this
    cluster: whoever reaches a scheduler could else run code as its user.

    environment: of its workers.
    """
    import dask
    from distributed.security import Security

    from pipeline.running.watching import watched

    check_loopback()
    with watched(demand.pages) as scheduler:
        _open_handles(options["n_workers"])
        start_tracker()
        common = {
            "host": HOST,
            "scheduler_kwargs": scheduler,
            "memory_limit": worker_memory(options["n_workers"], demand.memory),
            "silence_logs": logging.ERROR,
            "security": Security.temporary(),
            "protocol": "tls",
        }
        wanted = {**environment, "DASK_LOGGING__DISTRIBUTED": "error"}
        settings = {**SETTINGS, "distributed.nanny.pre-spawn-environ": wanted}
        # Dask sets the variables here again, and asks for the settings, whenever it replaces a worker
        with _restored(wanted), dask.config.set(settings):
            with _restored(wanted):
                os.environ.update(wanted)  # Dask prefers what is in this process's environment
                try:
                    cluster = unless_stopped(partial(kind, **common, **options), demand.stopped)
                except (RuntimeError, OSError) as error:
                    raise _failed_start(error) from None
            with cluster, _client_of(cluster) as client:
                yield client


def _client_of(cluster: Any) -> Client:
    """A client whose workers end with this process. Raises InputError where they do not answer in time."""
    from distributed import Client

    from pipeline.worker.plugins import Watchdog

    try:
        client = Client(cluster, set_as_default=False)
        client.register_plugin(Watchdog())
    except (RuntimeError, OSError) as error:
        raise _failed_start(error) from None
    return client


def check_loopback() -> None:
    """Raise InputError where processes of this machine cannot talk to each other."""
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"driver and workers cannot talk over the address {HOST} of this machine ({error}): see that its "
            "loopback interface is up (`ip link set lo up`), and that no firewall forbids it"
        ) from error


def _failed_start(error: Exception) -> InputError:
    """The mistake, or lack of time on a busy machine, by which workers did not start."""
    cause = error.__cause__ or error
    why = str(cause) or type(cause).__name__
    return InputError(f"no worker could be started ({why}): {remedy_of_failed_start()}")


def unless_stopped(make: Callable[[], Any], stopped: Callable[[], bool]) -> Any:
    """A cluster, made in a thread; if the run must end meanwhile, it is closed once it is there.

    Raises:
        StartInterruptedError: the run must end, and it was not there yet.
    """
    result: Future[Any] = Future()

    def begin() -> None:
        try:
            result.set_result(make())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=begin, name="start of the cluster", daemon=True).start()
    while not wait([result], timeout=LOOK).done:
        if stopped():
            result.add_done_callback(_close)
            raise StartInterruptedError
    return result.result()


def _close(result: Future[Any]) -> None:
    if not result.exception():
        result.result().close()


def worker_memory(workers: int, needed: int) -> int:
    """Bytes that each of these workers may take before it is ended.

    Its share of the machine; or what the largest task needs and some, where workers that a user asked for
    are so many that only some tasks find room side by side.
    """
    return max(int(LEAK_SHARE * MEMORY_LIMIT / workers), min(int(MARGIN * needed), int(MEMORY_LIMIT)))


def _open_handles(workers: int) -> None:
    """Let this process open the files that connections to its workers take; InputError where it may not."""
    needed = HANDLES + HANDLES_OF_A_WORKER * workers
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= 2 * needed > limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, 2 * needed), most))
    elif limit < needed:
        raise InputError(
            f"this process may open {limit} files, and {counted(workers, 'worker')} take about {needed} in "
            "it: ulimit -n 1024, or fewer workers"
        )


def worker_environment(threads: int, backend: str, gpus: int = 1) -> dict[str, str]:
    """Environment of a worker with this many kernel threads and GPUs.

    BLAS gets one: what tasks ask of it are matrices of a block's width, which more threads make slower.
    """
    kernels, blas = ("NUMBA", "OMP"), ("OPENBLAS", "MKL")
    counts = {**dict.fromkeys(kernels, threads), **dict.fromkeys(blas, 1)}
    of_backend = REUSING if backend == "cpu" else {GPUS_PER_WORKER: str(gpus)}
    threads_of = {f"{library}_NUM_THREADS": str(count) for library, count in counts.items()}
    return {**threads_of, **of_backend, **SAFE_PATH}


@contextmanager
def _restored(names: Iterable[str]) -> Iterator[None]:
    """Restore these variables of this process afterwards to what they were before."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

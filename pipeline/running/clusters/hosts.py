"""Workers on other hosts, started by ssh, or on the nodes of this job; the scheduler is in the driver."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dask
from distributed import Client, Scheduler
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.security import Security

from pipeline.running.clusters import Demand
from pipeline.running.clusters.certificates import write_certificates
from pipeline.running.clusters.local import SETTINGS, unless_stopped
from pipeline.running.clusters.remote import WORKER_ARGUMENTS, Remote, opening, workers_of_gpus
from pipeline.running.clusters.section import ClusterSection
from pipeline.running.watching import watched
from pipeline.worker.plugins import PATIENCE, Watchdog
from stages.base.errors import InputError

NODES = "nodes"
"""Name of what runs on all nodes of a job."""

SSH = ("ssh", "-tt", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
"""A terminal, so that what runs there ends with the connection; no question is asked."""

PARTING = 10.0
"""Seconds that a connection gets to end."""


@dataclass(frozen=True)
class Hosts(Remote):
    """Hosts with this package and the store in reach, each of one worker, or of one for each GPU or several.

    Scheduler and workers talk by mutual TLS; certificates lie in files of mode 600 in the run's folder of the
    store.

    Args:
        site: hosts, and what is written of each.
        launcher: words of a shell that run a command once on each node of this job; '' for hosts by ssh.
    """

    launcher: str = ""

    def words(self, name: str, scheduler: str, files: dict[str, str]) -> list[str]:
        """Words that start the workers of a host, or of all nodes."""
        if not self.launcher:
            return [*SSH, name, command(self.site, shlex.quote(name), scheduler, files)]
        on_a_node = command(self.site, '"$(hostname)"', scheduler, files)
        return ["bash", "-c", f"exec {self.launcher} bash -c {shlex.quote(on_a_node)}"]

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Start the workers, and end them with the block."""
        folder = demand.jobs.folder if demand.jobs else Path.cwd()
        security = Security.temporary()
        hosts = (NODES,) if self.launcher else self.site.hosts[: -(-demand.of_use // self.site.each)]
        with (
            watched(demand.pages) as scheduler,
            dask.config.set(SETTINGS),
            tempfile.TemporaryDirectory(prefix=".certificates-", dir=folder) as private,
        ):
            files = write_certificates(security, Path(private))
            make = partial(_Cluster, self, hosts, files, security, scheduler)
            cluster = unless_stopped(make, demand.stopped)
            with cluster, Client(cluster, set_as_default=False) as client:
                client.register_plugin(Watchdog())
                yield client


def command(site: ClusterSection, name: str, scheduler: str, files: dict[str, str]) -> str:
    """Line of a shell that starts the workers of a host.

    Args:
        site: what is written of each host.
        name: of the worker, or the beginning of the names of several, as a shell reads it.
        scheduler: address.
        files: paths of `ca_file`, `cert` and `key`.
    """
    words = ["-m", "distributed.cli.dask_worker", scheduler, "--nanny", *WORKER_ARGUMENTS]
    words += ["--death-timeout", f"{PATIENCE:g}"]
    words += ["--interface", site.interface] if site.interface else []
    words += [word for key, file in files.items() for word in (f"--tls-{key.replace('_', '-')}", file)]
    words += ["--nworkers", str(site.each)] if site.each > 1 and not site.gpus else []
    worker = f"{site.interpreter} {shlex.join(words)}"
    several = site.gpus and site.each > 1
    alone = f"{worker} --name {name}"
    start = workers_of_gpus(worker, name, site.each, site.gpus_per_worker) if several else alone
    return "; ".join([f"cd {shlex.quote(os.getcwd())}", *opening(site), start])


class _Host(ProcessInterface):  # type: ignore[misc]
    """The connection to a host, in which its workers run."""

    status: Status

    def __init__(self, scheduler: str, name: str, hosts: Hosts, files: dict[str, str]) -> None:
        super().__init__()
        self._host, self._words = name, hosts.words(name, scheduler, files)
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self.refusal = ""
        """Last line of a connection that ended on its own."""

    async def start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"{self._words[0]} cannot be started: {error}") from None
        self._watch = asyncio.ensure_future(self._wait(self._process))
        await super().start()

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        """Mark this host as failed once its connection ends."""
        last = ""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            last = line.decode(errors="replace").strip() or last
        code = await process.wait()
        if self.status == Status.running:
            self.refusal = f"{self._host}: {self._words[0]} ended with code {code}: {last}"
            self.status = Status.failed

    async def close(self) -> None:
        await super().close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)  # it leads a session of its own
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), PARTING)


class _Cluster(SpecCluster):  # type: ignore[misc]
    """A scheduler here, and the hosts' connections."""

    def __init__(
        self,
        hosts: Hosts,
        names: tuple[str, ...],
        files: dict[str, str],
        security: Security,
        scheduler: dict[str, object],
    ) -> None:
        options = {"hosts": hosts, "files": files}
        listening = {"protocol": "tls", "security": security, "interface": hosts.site.interface}
        super().__init__(
            scheduler={"cls": Scheduler, "options": {**listening, **scheduler}},
            workers={name: {"cls": _Host, "options": options} for name in names},
            security=security,
            silence_logs="error",
        )

    def scale(self, n: int = 0, memory: object = None, cores: object = None) -> None:
        """Connect again to hosts that were lost, of which there are no others; n = 0 ends them all."""
        if not n:
            self.worker_spec.clear()
        self.loop.add_callback(self._correct_state)

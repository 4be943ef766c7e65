"""A cluster as configuration: what a person wrote about it, and a whole job of its batch system."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dask
import dask.utils

from pipeline.declare.duration import seconds
from pipeline.running.clusters import Devices
from pipeline.running.clusters.batch import KINDS as BATCH_KINDS
from pipeline.running.clusters.batch import BatchSystem, Wish, batch_system
from stages.base.errors import InputError

NAMED = ("local", "cuda", *BATCH_KINDS)
"""Kinds that need no more than their name, given a site's configuration of its batch system."""


@dataclass(frozen=True)
class Workers:
    """Bounds of the number of workers; between them, work that waits decides."""

    min: int
    max: int

    @property
    def elastic(self) -> bool:
        """True if workers come and go with the work."""
        return self.min < self.max


@dataclass(frozen=True)
class Site:
    """A cluster as it is written down; None leaves a thing to the site's configuration of dask-jobqueue.

    GPUs, cores, memory and processes are those of a job, or of a host where workers are started by ssh.
    """

    kind: str = "local"
    backend: str = "cpu"
    where: str = ""
    """Address or scheduler file of a cluster that runs already."""
    hosts: tuple[str, ...] = ()
    gpus: int | None = None
    gpus_per_worker: int = 1
    """GPUs that each worker owns, a divisor of `gpus` where these are known."""
    gpu_memory: int | None = None
    """Bytes of each GPU."""
    processes: int | None = None
    """Workers without a GPU."""
    cores: int | None = None
    memory: int | None = None
    """Bytes."""
    walltime: int | None = None
    """Seconds."""
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] | None = None
    prologue: tuple[str, ...] | None = None
    container: str = ""
    """Words before Python, such as `apptainer exec --nv image.sif`."""
    python: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    interface: str | None = None
    workers: Workers | None = None

    def settled(self) -> Site:
        """Copy with the site's configuration of dask-jobqueue where nothing is written."""
        if self.kind not in BATCH_KINDS:
            return self
        account = "account" if self.kind in ("slurm", "pbs") else "project"
        written = {
            "processes": _configured(self.kind, "processes"),
            "cores": _configured(self.kind, "cores"),
            "memory": _bytes(self.kind),
            "walltime": _seconds(self.kind),
            "partition": _configured(self.kind, "queue"),
            "account": _configured(self.kind, account),
            "directives": _texts(_configured(self.kind, "job-extra-directives")),
            "prologue": _texts(_configured(self.kind, "job-script-prologue")),
            "interface": _configured(self.kind, "interface"),
        }
        return replace(
            self,
            python=self.python or _configured(self.kind, "python") or "",
            **{key: value for key, value in written.items() if getattr(self, key) is None},
        )

    @property
    def each(self) -> int:
        """Workers of a job or host."""
        return (self.gpus or 0) // self.gpus_per_worker or self.processes or 1

    @property
    def devices(self) -> Devices | None:
        """GPUs that a run would use, as far as they are written down."""
        if self.gpu_memory is None:
            return None
        written = self.each * max(1, len(self.hosts))
        workers = self.workers.max if self.workers else written
        each = self.gpus_per_worker
        return Devices(workers * each, self.gpu_memory, each, self.gpus or 0)

    @property
    def interpreter(self) -> str:
        """Python of a job, in its container if it has one, as words of a shell."""
        if self.container:
            return f"{self.container} {self.python or 'python3'}"
        return self.python or shlex.quote(sys.executable)

    @property
    def exports(self) -> tuple[str, ...]:
        """Lines of a shell that set the written environment."""
        return tuple(f"export {name}={shlex.quote(value)}" for name, value in self.environment.items())

    def batch_job(
        self, name: str, output: str, nodes: int = 1, tasks: int = 0, walltime: int | None = None
    ) -> BatchJob:
        """A whole job, with settled defaults: to hold scheduler, workers and driver.

        Args:
            name: of the job.
            output: file of both outputs.
            nodes: number of nodes, each with the GPUs, cores and memory that are written.
            tasks: of an array job, 0 for a single one.
            walltime: seconds, instead of the written ones.

        Raises:
            InputError: the batch system has no words for this.
        """
        site, system = self.settled(), batch_system(self.kind)
        wish = Wish(
            name,
            output,
            nodes=nodes,
            gpus=site.gpus or 0,
            cores=site.cores,
            memory=site.memory,
            walltime=walltime or site.walltime,
            partition=site.partition,
            account=site.account,
            tasks=tasks,
            directives=site.directives or (),
        )
        prologue = (*site.exports, *(site.prologue or ()))
        head, on_each_node = tuple(system.head(wish)), system.on_each_node(wish)
        return BatchJob(system, head, prologue, site.interpreter, on_each_node, site.backend)


@dataclass(frozen=True)
class BatchJob:
    """All that a script of a whole job needs."""

    system: BatchSystem
    """Submits the script, tells the state of the job, cancels it."""
    head: tuple[str, ...]
    """Lines of directives, for below the script's first line."""
    prologue: tuple[str, ...]
    """Lines of a shell: the environment, then what is written."""
    python: str
    """Words that start Python, in its container if it has one."""
    on_each_node: str
    """Words before a command that is to run once on each node; empty for a single node without such words."""
    backend: str
    """'cpu' or 'cuda'."""


def _configured(kind: str, key: str) -> Any:
    return dask.config.get(f"jobqueue.{kind}.{key}", None)


def _bytes(kind: str) -> int | None:
    text = _configured(kind, "memory")
    try:
        return None if text is None else dask.utils.parse_bytes(text)
    except ValueError:
        raise _unreadable(kind, "memory", text) from None


def _seconds(kind: str) -> int | None:
    text = _configured(kind, "walltime")
    hours_and_minutes = kind == "lsf" and re.fullmatch(r"\d+:\d\d", str(text))
    try:
        return None if text is None else seconds(f"{text}:00" if hours_and_minutes else str(text))
    except ValueError:
        raise _unreadable(kind, "walltime", text) from None


def _unreadable(kind: str, key: str, value: object) -> InputError:
    return InputError(
        f"jobqueue.{kind}.{key} of dask's configuration is {value!r}, which is not understood here: write "
        f"`{key}` in the `cluster` section"
    )


def _texts(values: Any) -> tuple[str, ...] | None:
    return tuple(values) if values else None

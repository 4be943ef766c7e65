"""The `cluster` section of a workflow file, or of a file of its own: where and how workers run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import dask.utils
from pydantic import Field, WithJsonSchema, field_validator

from pipeline.declare.duration import seconds
from pipeline.declare.text import gigabytes
from pipeline.running.clusters.batch import KINDS as BATCH_KINDS
from pipeline.running.clusters.site import Site, Workers
from pipeline.running.footprint import CONTEXT
from workflows.parameter_file import FileSection, ParameterFile, Problem, validated

Kind = Literal["local", "cuda", "slurm", "pbs", "lsf", "sge", "htcondor", "oar", "ssh", "address"]
Lines = Annotated[tuple[str, ...], Field(strict=False)]

OF_A_HOST = (
    "gpus",
    "gpus_per_worker",
    "gpu_memory",
    "processes",
    "cores",
    "prologue",
    "container",
    "python",
    "environment",
    "interface",
)
OF_A_JOB = (*OF_A_HOST, "memory", "walltime", "partition", "account", "directives", "workers")
WITHOUT = {"htcondor": {"walltime", "partition", "account"}}
"""What `dask-jobqueue` has no words for: directives say it."""
TAKES = {
    "local": ("workers",),
    "cuda": ("workers", "gpus_per_worker", "gpu_memory"),
    "ssh": ("hosts", *OF_A_HOST),
    "address": ("where", "gpus_per_worker", "gpu_memory"),
    **{kind: tuple(k for k in OF_A_JOB if k not in WITHOUT.get(kind, ())) for kind in BATCH_KINDS},
}
"""Keys of each kind, beside `kind` and `backend`."""

NAME = re.compile(r"[A-Za-z_]\w*", flags=re.ASCII)
NUMBER_OR_BOUNDS = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ]
}


class WorkersSection(FileSection):
    """Bounds of the number of workers."""

    min: int = Field(default=0, ge=0)
    """Workers that are held while the run lasts."""
    max: int = Field(ge=1)
    """Workers at most; those without work leave."""


class ClusterSection(FileSection):
    """Place of the workers. A key left out is taken from the site's configuration of dask-jobqueue."""

    kind: Kind
    """Processors of this machine, its GPUs, jobs of a batch system, hosts by ssh, or what runs already."""
    backend: Literal["cpu", "cuda"] | None = None
    """Where stages compute; cuda where there are `gpus`, and for kind cuda."""
    where: str | None = None
    """Of kind address: tcp://host:port, or the path of a scheduler file."""
    hosts: Lines = ()
    """Of kind ssh: names that `ssh NAME` reaches without a password."""
    gpus: int | None = Field(default=None, ge=1)
    """GPUs of a job or host; each is a worker of its own, which sees it as device 0."""
    gpus_per_worker: int | None = Field(default=None, ge=1)
    """GPUs that each worker owns, 1 unless given; they share a lattice that one cannot hold."""
    gpu_memory: str | None = None
    """Of each GPU, such as 80GB, which plans are compared with where the GPUs are not at hand."""
    processes: int | None = Field(default=None, ge=1)
    """Workers of a job or host without GPUs; 1 unless the site says otherwise."""
    cores: int | None = Field(default=None, ge=1)
    """Processor cores of a job or host, shared by its workers."""
    memory: str | None = None
    """Of a job, such as 120GB or 64GiB."""
    walltime: str | None = None
    """Of a job: 04:00:00, 1-00:00:00 or 4h."""
    partition: str | None = None
    """Partition or queue that jobs are submitted to."""
    account: str | None = None
    """Account or project that pays for them."""
    directives: Lines | None = None
    """Further options of jobs, as the batch system spells them, without the prefix of a script's line."""
    prologue: Lines | None = None
    """Lines of a shell before workers start, such as `module load cuda`."""
    container: str | None = None
    """Words before Python, such as `apptainer exec --nv quarkline.sif`."""
    python: str | None = None
    """Python of the jobs or hosts; unless given the one that runs here, or `python3` of the container."""
    environment: dict[str, str] = Field(default={})
    """Variables of the workers' environment, word by word."""
    interface: str | None = None
    """Network interface of scheduler and workers, such as ib0."""
    workers: Annotated[WorkersSection | None, WithJsonSchema(NUMBER_OR_BOUNDS)] = None
    """A number of workers, or `{min: 0, max: 16}`: between them, work that waits decides."""

    @field_validator("workers", mode="before")
    @classmethod
    def _bounds(cls, workers: object) -> object:
        if isinstance(workers, bool) or not isinstance(workers, int | dict | None):
            raise ValueError(f"a number or {{min: 0, max: 16}} is expected, got {workers!r}")
        if not isinstance(workers, int):
            return workers
        if workers < 1:
            raise ValueError(f"at least 1 worker is needed, got {workers}")
        return {"min": workers, "max": workers}

    @field_validator("environment", mode="before")
    @classmethod
    def _words(cls, environment: object) -> object:
        """Numbers as text, which is what a variable holds."""
        if not isinstance(environment, dict):
            return environment
        numbers = {key: str(value) for key, value in environment.items() if type(value) in (int, float)}
        return {**environment, **numbers}

    @field_validator("environment")
    @classmethod
    def _named(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a variable: take letters, digits and _")
        return environment

    @field_validator("memory", "gpu_memory", mode="before")
    @classmethod
    def _size(cls, memory: object) -> object:
        if memory is not None:
            _bytes(str(memory))
        return memory

    @field_validator("gpu_memory")
    @classmethod
    def _beside_context(cls, memory: str | None) -> str | None:
        if memory is not None and _bytes(memory) <= CONTEXT:
            raise ValueError(f"{memory!r} is no more than CUDA itself takes of a GPU, {gigabytes(CONTEXT)}")
        return memory

    @field_validator("walltime")
    @classmethod
    def _duration(cls, walltime: str | None) -> str | None:
        if walltime is not None and not seconds(walltime):
            raise ValueError(f"{walltime!r} leaves no time")
        return walltime

    @field_validator("where", "container", "python", "partition", "account", "interface")
    @classmethod
    def _something(cls, text: str | None) -> str | None:
        return _line(text)

    @field_validator("hosts", "directives")
    @classmethod
    def _one_line_each(cls, lines: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for line in lines or ():
            _line(line)
        return lines

    def problems(self) -> Iterator[Problem]:
        """Keys that do not fit each other."""
        for key in type(self).model_fields:
            given = getattr(self, key) not in (None, (), {})
            if given and key not in (*TAKES[self.kind], "kind", "backend"):
                yield (key,), f"kind {self.kind} takes no `{key}`: leave it out"
        if self.kind == "ssh" and not self.hosts:
            yield ("kind",), "kind ssh needs `hosts`: add the names of some"
        if self.kind == "address" and not self.where:
            yield ("kind",), "kind address needs `where`: tcp://host:port, or the path of a scheduler file"
        if self.gpu_memory and not self._on_gpus:
            yield ("gpu_memory",), "no worker has a GPU: leave it out, or write `gpus` or `backend: cuda`"
        if self.gpus and self.processes:
            yield ("processes",), "jobs with `gpus` have a worker for each: leave `processes` out"
        yield from self._uneven_workers()
        if self.kind == "htcondor" and (self.gpus or 1) > 1:
            yield ("gpus",), "htcondor jobs have one GPU each here: write 1, and more `workers`"
        if self.cores and self.cores < (each := self._workers_of_a_job):
            yield ("cores",), f"{self.cores} cores are too few for {each} workers of a job: one each at least"
        if self.workers and self.workers.min > self.workers.max:
            yield ("workers",), f"min {self.workers.min} is above max {self.workers.max}: exchange them"
        yield from self._misplaced_backend()

    def _uneven_workers(self) -> Iterator[Problem]:
        each = self.gpus_per_worker or 1
        if each > 1 and not self._on_gpus and "gpus_per_worker" in TAKES[self.kind]:
            yield ("gpus_per_worker",), "no worker has a GPU: leave it out, or write `gpus`"
        elif self.gpus and self.gpus % each:
            yield (
                ("gpus_per_worker",),
                f"{each} does not divide the {self.gpus} `gpus` of a job or host: take "
                f"{' or '.join(str(n) for n in range(1, self.gpus + 1) if self.gpus % n == 0)}",
            )

    @property
    def _workers_of_a_job(self) -> int:
        return max(1, (self.gpus or self.processes or 1) // (self.gpus_per_worker or 1))

    def _misplaced_backend(self) -> Iterator[Problem]:
        if self.kind == "local" and self.backend == "cuda":
            yield ("backend",), "kind local computes on processors: for its GPUs take kind cuda"
        elif self.backend == "cpu" and (self.gpus or self.kind == "cuda"):
            yield ("backend",), "workers with GPUs compute on them: leave `backend` out"
        elif self.backend == "cuda" and "gpus" in TAKES[self.kind] and not self.gpus:
            yield ("backend",), "cuda needs `gpus`, the number of them in a job or host: add it"

    @property
    def _on_gpus(self) -> bool:
        return self.backend == "cuda" or self.gpus is not None or self.kind == "cuda"

    @property
    def site(self) -> Site:
        """Cluster of the engine."""
        return Site(
            kind=self.kind,
            backend="cuda" if self._on_gpus else "cpu",
            where=self.where or "",
            hosts=self.hosts,
            gpus=self.gpus,
            gpus_per_worker=self.gpus_per_worker or 1,
            gpu_memory=None if self.gpu_memory is None else _bytes(self.gpu_memory),
            processes=self.processes,
            cores=self.cores,
            memory=None if self.memory is None else _bytes(self.memory),
            walltime=None if self.walltime is None else seconds(self.walltime),
            partition=self.partition,
            account=self.account,
            directives=self.directives,
            prologue=self.prologue,
            container=self.container or "",
            python=self.python or "",
            environment=self.environment,
            interface=self.interface,
            workers=Workers(self.workers.min, self.workers.max) if self.workers else None,
        )


class ClusterFile(FileSection):
    """A file, or the part of a workflow file, that is about the cluster alone."""

    cluster: ClusterSection
    """Where workers run."""


def read_cluster(file: ParameterFile) -> Site:
    """The cluster of a file whose values are a section `cluster` and nothing else.

    Raises:
        InputError: every problem of the section, with its place.
    """
    section = validated(file, ClusterFile).cluster
    file.refuse((("cluster", *location), text) for location, text in section.problems())
    return section.site


def _bytes(text: str) -> int:
    try:
        size = dask.utils.parse_bytes(text)
    except (ValueError, OverflowError):
        size = 0
    if size < 2**20 or not text.strip()[-1:].isalpha():
        raise ValueError(f"{text!r} is no size of memory: write it as 120GB or 64GiB")
    return size


def _line(text: str | None) -> str | None:
    if text is not None and (not text.strip() or "\n" in text):
        raise ValueError(f"{text!r} is empty or has several lines: write one line, or leave it out")
    return text

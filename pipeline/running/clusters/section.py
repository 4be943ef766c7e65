"""The section `cluster` of a workflow file, or of a file of its own: where and how workers run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from pipeline.batch import KINDS as BATCH_KINDS
from pipeline.batch import JobRequest, batch_system
from pipeline.declare.duration import seconds
from pipeline.declare.text import gigabytes
from pipeline.running.clusters import CONTEXT, Devices
from stages.base.errors import InputError

NAMED = ("local", "cuda", *BATCH_KINDS)
"""Kinds that need no more than their name, given a site's configuration of its batch system."""

OF_A_HOST = {
    *("gpus", "gpus_per_worker", "gpu_memory", "processes", "cores"),
    *("prologue", "container", "python", "environment", "interface"),
}
OF_A_JOB = OF_A_HOST | {"memory", "walltime", "partition", "account", "directives", "workers"}
TAKES = {
    "local": {"workers"},
    "cuda": {"workers", "gpus_per_worker", "gpu_memory"},
    **dict.fromkeys(BATCH_KINDS, OF_A_JOB),
    "ssh": {"hosts", *OF_A_HOST},
    "address": {"where", "gpus_per_worker", "gpu_memory"},
}
"""Keys of each kind, beside `kind` and `backend`."""

GONE = ("sge", "htcondor", "oar")
"""Batch systems of earlier versions, which stores may name."""

CONFIGURED = {
    **{key: key for key in ("processes", "cores", "memory", "walltime", "interface", "python")},
    "partition": "queue",
    "directives": "job-extra-directives",
    "prologue": "job-script-prologue",
}
"""Keys that the site's configuration of dask-jobqueue has too, by their names in it."""

MOST = 1_000_000
"""Of workers, GPUs or cores: more are a slip."""
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)
NUMBER_OR_BOUNDS = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ]
}


def _kind(kind: object, info: Info) -> object:
    if kind in GONE and info.mode != "json":
        raise ValueError(
            f"{kind} is no batch system that is known here (known: {', '.join(BATCH_KINDS)}): start a Dask "
            "scheduler and workers by a script of your own, as `quarkline init gpu_job` writes one, and use "
            "them by `kind: address`"
        )
    if kind not in (*TAKES, *GONE):
        *names, last = map(repr, TAKES)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})
    return kind


def _bytes(memory: object, info: Info) -> object:
    """Bytes of a text such as 120GB. Campaigns, which programs write, have a number."""
    if info.mode == "json":
        return memory
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(text := str(memory)))
    except (ValueError, OverflowError):
        size = 0
    if not 2**20 <= size <= 2**60 or not text.strip()[-1:].isalpha():
        raise ValueError(f"{text!r} is no size of memory: write it as 120GB or 64GiB")
    if info.field_name == "gpu_memory" and size <= CONTEXT:
        raise ValueError(f"{text!r} is no more than CUDA itself takes of a GPU, {gigabytes(CONTEXT)}")
    return size


def _seconds(walltime: object, info: Info) -> object:
    """Seconds of a text such as 04:00:00. Campaigns, which programs write, have a number."""
    if info.mode == "json":
        return walltime
    if not isinstance(walltime, str):
        raise PydanticKnownError("string_type")
    if not (duration := seconds(walltime)):
        raise ValueError(f"{walltime!r} leaves no time")
    return duration


def _one_line(text: str) -> str:
    if not text.strip() or "\n" in text:
        raise ValueError(f"{text!r} is empty or has several lines: write one line, or leave it out")
    return text


TEXT = WithJsonSchema({"type": "string"})
Bytes = Annotated[int, BeforeValidator(_bytes), TEXT]
Seconds = Annotated[int, BeforeValidator(_seconds), TEXT]
Line = Annotated[str, AfterValidator(_one_line)]


class Workers(BaseModel):
    """Bounds of the number of workers; the number follows the work."""

    model_config = STRICT

    min: int = Field(default=0, ge=0, le=MOST)
    """Workers that are held while the run lasts."""
    max: int = Field(ge=1, le=MOST)
    """Workers at most; those without work leave."""

    @property
    def elastic(self) -> bool:
        """True if workers come and go with the work."""
        return self.min < self.max


class ClusterSection(BaseModel):
    """Place of the workers. A key left out is taken from the site's configuration of dask-jobqueue."""

    model_config = STRICT

    kind: Annotated[str, BeforeValidator(_kind), WithJsonSchema({"enum": [*TAKES], "type": "string"})]
    """Processors of this machine, its GPUs, jobs of a batch system, hosts by ssh, or what runs already."""
    backend: Literal["cpu", "cuda"] = Field(default_factory=lambda: "cpu")
    """Where stages compute; cuda where there are `gpus`, and for kind cuda."""
    where: Line | None = None
    """Address for kind address: tcp://host:port, or the path of a scheduler file."""
    hosts: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """Hosts for kind ssh: names that `ssh NAME` reaches without a password."""
    gpus: int | None = Field(default=None, ge=1, le=MOST)
    """GPUs of a job or host; each is a worker of its own, which sees it as device 0."""
    gpus_per_worker: int = Field(default=1, ge=1, le=MOST)
    """GPUs that each worker owns, default 1; they share a lattice that one cannot hold."""
    gpu_memory: Bytes | None = None
    """Memory of each GPU, such as 80GB; plans are compared with it on machines without these GPUs."""
    processes: int | None = Field(default=None, ge=1, le=MOST)
    """Workers of a job or host without GPUs; 1 unless the site says otherwise."""
    cores: int | None = Field(default=None, ge=1, le=MOST)
    """Processor cores of a job or host, shared by its workers."""
    memory: Bytes | None = None
    """Memory of a job, such as 120GB or 64GiB."""
    walltime: Seconds | None = None
    """Walltime of a job: 04:00:00, 1-00:00:00 or 4h."""
    partition: Line | None = None
    """Partition or queue that jobs are submitted to."""
    account: Line | None = None
    """Account or project that pays for them."""
    directives: Annotated[tuple[Line, ...], Field(strict=False)] | None = None
    """Further options of jobs, as the batch system spells them, without the prefix of a script's line."""
    prologue: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Lines of a shell before workers start, such as `module load cuda`."""
    container: Line | None = None
    """Words before Python, such as `apptainer exec --nv quarkline.sif`."""
    python: Line | None = None
    """Python of the jobs or hosts; default: the one that runs here, or `python3` of the container."""
    environment: dict[str, str] = Field(default={})
    """Variables of the workers' environment, used literally."""
    interface: Line | None = None
    """Network interface of scheduler and workers, such as ib0."""
    workers: Annotated[Workers | None, WithJsonSchema(NUMBER_OR_BOUNDS)] = None
    """A number of workers, or `{min: 0, max: 16}`: the number follows the work."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: object, info: Info) -> object:
        """Optional keys without a value are left out, and the backend is worked out."""
        if not isinstance(values, dict):
            return values
        empty: list[object] = ["", None, {}, []] if info.mode == "json" else [None]
        held = {"kind"} if info.mode == "json" else {"kind", "hosts", "environment"}
        left_out = {key for key in cls.model_fields.keys() - held if key in values and values[key] in empty}
        if info.mode == "json":
            left_out.add("dashboard_port")  # of earlier versions
        given = {key: value for key, value in values.items() if key not in left_out}
        return {"backend": "cuda" if given.get("kind") == "cuda" or "gpus" in given else "cpu", **given}

    @field_validator("workers", mode="before")
    @classmethod
    def _bounds(cls, workers: object) -> object:
        if isinstance(workers, bool) or not isinstance(workers, int | dict | Workers):
            raise ValueError(f"a number or {{min: 0, max: 16}} is expected, got {workers!r}")
        if not isinstance(workers, int):
            return workers
        if workers < 1:
            raise ValueError(f"at least 1 worker is needed, got {workers}")
        return {"min": workers, "max": workers}

    @field_validator("environment", mode="before")
    @classmethod
    def _words(cls, environment: object) -> object:
        """Numbers as text, which is what a variable holds; names that a shell takes."""
        if not isinstance(environment, dict):
            return environment
        for name in environment:
            if isinstance(name, str) and not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
                raise ValueError(f"{name!r} is no name of a variable: take letters, digits and _")
        numbers = {key: str(value) for key, value in environment.items() if type(value) in (int, float)}
        return {**environment, **numbers}

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Keys that do not fit each other, and why."""
        takes, gpus = TAKES[self.kind], self.backend == "cuda" or self.gpus or self.kind == "cuda"
        for key in type(self).model_fields:
            if key in self.model_fields_set - {*takes, "kind", "backend"} and getattr(self, key):
                yield (key,), f"kind {self.kind} takes no `{key}`: leave it out"
        if self.kind == "ssh" and not self.hosts:
            yield ("kind",), "kind ssh needs `hosts`: add the names of some"
        if self.kind == "address" and not self.where:
            yield ("kind",), "kind address needs `where`: tcp://host:port, or the path of a scheduler file"
        if self.gpu_memory and not gpus:
            yield ("gpu_memory",), "no worker has a GPU: leave it out, or write `gpus` or `backend: cuda`"
        if self.gpus and self.processes:
            yield ("processes",), "jobs with `gpus` have a worker for each: leave `processes` out"
        if self.gpus_per_worker > 1 and not gpus and "gpus_per_worker" in takes:
            yield ("gpus_per_worker",), "no worker has a GPU: leave it out, or write `gpus`"
        elif self.gpus and self.gpus % self.gpus_per_worker:
            divisors = " or ".join(str(n) for n in range(1, self.gpus + 1) if self.gpus % n == 0)
            uneven = f"{self.gpus_per_worker} does not divide the {self.gpus} `gpus` of a job or host"
            yield ("gpus_per_worker",), f"{uneven}: take {divisors}"
        if self.cores and self.cores < self.each:
            few = f"{self.cores} cores are too few for {self.each} workers of a job"
            yield ("cores",), f"{few}: one each at least"
        if self.workers and self.workers.min > self.workers.max:
            yield ("workers",), f"min {self.workers.min} is above max {self.workers.max}: exchange them"
        if self.kind == "local" and self.backend == "cuda" and not self.gpus:
            yield ("backend",), "kind local computes on processors: for its GPUs take kind cuda"
        elif self.backend == "cpu" and gpus:
            yield ("backend",), "workers with GPUs compute on them: leave `backend` out"
        elif self.backend == "cuda" and "gpus" in takes and not self.gpus:
            yield ("backend",), "cuda needs `gpus`, the number of them in a job or host: add it"

    def settled(self) -> ClusterSection:
        """Copy with the site's configuration of dask-jobqueue where nothing is written.

        Raises:
            InputError: a value of it is not understood.
        """
        if self.kind not in BATCH_KINDS:
            return self
        import dask
        from dask.utils import parse_bytes

        system, found = batch_system(self.kind), dict[str, Any]()
        parsed = {"memory": parse_bytes, "walltime": system.seconds, "directives": tuple, "prologue": tuple}
        for key, word in {**CONFIGURED, "account": system.account_word}.items():
            name = f"jobqueue.{self.kind}.{word}"
            value = dask.config.get(name, None)
            if value and getattr(self, key) is None:
                try:
                    found[key] = parsed[key](value) if key in parsed else value
                except ValueError:
                    raise InputError(
                        f"{name} of dask's configuration is {value!r}, which is not understood here: write "
                        f"`{key}` in the `cluster` section"
                    ) from None
        return self.model_copy(update=found)

    @property
    def each(self) -> int:
        """Workers of a job or host."""
        return (self.gpus or 0) // self.gpus_per_worker or self.processes or 1

    @property
    def devices(self) -> Devices | None:
        """GPUs that a run would use, as far as they are written down."""
        if self.gpu_memory is None:
            return None
        workers = self.workers.max if self.workers else self.each * max(1, len(self.hosts))
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

    def job(self, name: str, output: str, nodes: int = 1, tasks: int = 0) -> JobRequest:
        """A job of the batch system, with what the site's configuration says where nothing is written.

        Args:
            name: of the job.
            output: file of both outputs.
            nodes: number of nodes, each with the GPUs, cores and memory that are written.
            tasks: of an array job, 0 for a single one.
        """
        site = self.settled()
        keys = ("gpus", "cores", "memory", "walltime", "partition", "account", "directives")
        return JobRequest(name, output, nodes, tasks, **{key: getattr(site, key) for key in keys})

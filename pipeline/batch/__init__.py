"""Batch systems, a file each: heads of jobs' scripts, and submitting, asking about and cancelling jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, NamedTuple

from pipeline.declare.duration import duration_text, seconds
from stages.base.errors import InputError

ANSWER = 30.0
"""Seconds that a batch system gets to answer."""

KINDS = tuple(sorted((each.name for each in iter_modules(__path__)), reverse=True))
"""Batch systems, by their files here and by their names in the configuration of dask-jobqueue.

Slurm goes before PBS: where its jobs have variables of PBS as well, they are its own.
"""


class State(StrEnum):
    """Knowledge of a job that was submitted."""

    ALIVE = "alive"
    """It waits, runs, is held or is just ending."""
    ENDED = "ended"
    """The batch system answers, and says that the job is over, or that it knows none of this id."""
    UNKNOWN = "unknown"
    """No answer, or none that says either: proof of nothing."""


class Seen(NamedTuple):
    """A job as its batch system tells it."""

    state: State
    name: str = ""


UNSEEN = Seen(State.UNKNOWN)
OVER = Seen(State.ENDED)


@dataclass(frozen=True)
class JobRequest:
    """Contents of the head of a job's script; None or empty leaves a thing to the batch system."""

    name: str
    output: str
    """Where both outputs go."""
    nodes: int = 1
    tasks: int = 0
    """Of an array job, numbered from 0; 0: the job is none."""
    gpus: int | None = None
    """Of each node."""
    cores: int | None = None
    """Of each node."""
    memory: int | None = None
    """Bytes of each node."""
    walltime: int | None = None
    """Seconds."""
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] | None = None
    """Further options, without the prefix."""

    def asks(self, *options: str) -> bool:
        """True if the further options have one of these."""
        return any(option in directive for directive in self.directives or () for option in options)


class BatchSystem(ABC):
    """A batch system, by its commands on the PATH of this machine."""

    kind: ClassVar[str]
    submission: ClassVar[str]
    cancellation: ClassVar[str]
    prefix: ClassVar[str]
    """What begins a line of options in a job's script."""
    job_variable: ClassVar[str]
    """Variable with the id of the job that a process belongs to."""
    task_variable: ClassVar[str] = ""
    """Variable that numbers the tasks of an array job from 0."""
    own_variables: ClassVar[str]
    """Expression of the variables of a job, which one that it submits would inherit."""
    dask_class: ClassVar[str]
    """Class of dask-jobqueue for jobs of workers."""
    account_word: ClassVar[str] = "account"
    """Word of dask-jobqueue for what pays for a job."""

    @abstractmethod
    def options(self, job: JobRequest) -> list[str]:
        """Options for the head of a job's script. Raises InputError for what this system has no words for."""

    @abstractmethod
    def gpu_directives(self, job: JobRequest) -> list[str]:
        """Options that ask for the GPUs of a node, unless the further ones do."""

    def head(self, job: JobRequest) -> list[str]:
        """Lines for the head of a job's script."""
        return [f"{self.prefix} {option}" for option in (*self.options(job), *(job.directives or ()))]

    @abstractmethod
    def on_each_node(self, job: JobRequest) -> str:
        """Words before a command that a job is to run once on each of its nodes; empty for a single one."""

    @abstractmethod
    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit a script; returns the job's id.

        Args:
            script: with its head.
            after: id of a job that must have ended, however, before this one begins.

        Raises:
            InputError: the batch system refuses it, does not answer, or is not here.
        """

    @abstractmethod
    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Knowledge of jobs that were submitted, by id."""

    def state(self, job: str) -> State:
        """Knowledge of a job that was submitted."""
        return self.look([job])[job].state

    def cancel(self, jobs: Sequence[str]) -> bool:
        """Cancel jobs; True if none of them can be alive any more."""
        if not jobs:
            return True
        answer = ask(self.cancellation, *jobs)
        if answer is not None and not answer.returncode:
            return True
        return all(seen.state == State.ENDED for seen in self.look(jobs).values())

    @property
    def here(self) -> bool:
        """True if jobs can be submitted from this machine."""
        return shutil.which(self.submission) is not None

    def job_of(self, variables: Mapping[str, str]) -> tuple[str, int]:
        """Id of the job of a process with these variables, '' outside of one, and its earlier lives."""
        return variables.get(self.job_variable, ""), 0

    def clock(self, seconds: int) -> str:
        """A walltime as its options, and those of dask-jobqueue, have it: HH:MM:SS."""
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def seconds(self, walltime: object) -> int:
        """Seconds of a walltime as the site's configuration has it. Raises ValueError for another form."""
        return seconds(str(walltime))

    def dask_directives(self, job: JobRequest) -> dict[str, list[str]]:
        """Options of dask-jobqueue with the further ones, and with those that ask for GPUs."""
        directives = [*self.gpu_directives(job), *(job.directives or ())]
        return {"job_extra_directives": directives} if directives else {}


def batch_system(kind: str) -> BatchSystem:
    """The batch system of a name in `KINDS`."""
    module: Any = import_module(f"{__name__}.{kind}")
    return module.SYSTEM


def own_job() -> tuple[str, str, int]:
    """Batch system, id and earlier lives of the job that this process belongs to; '' outside of one."""
    for kind in KINDS:
        job, restarts = batch_system(kind).job_of(os.environ)
        if job:
            return kind, job, restarts
    return "", "", 0


def ask(*command: str, script: Path | None = None) -> subprocess.CompletedProcess[str] | None:
    """The answer to a command in plain English; None if there is none in time, or no such command.

    script: the command's standard input.
    """
    of_a_job = re.compile("|".join(batch_system(kind).own_variables for kind in KINDS))
    outside = {name: value for name, value in os.environ.items() if not of_a_job.match(name)}
    environment = {**outside, "LC_ALL": "C"}
    try:
        with open(script or os.devnull) as source:
            return subprocess.run(
                command, stdin=source, capture_output=True, text=True, env=environment, timeout=ANSWER
            )
    except (OSError, subprocess.SubprocessError):
        return None


def submitted(answer: subprocess.CompletedProcess[str] | None, command: str, script: Path) -> str:
    """Output of a submission. Raises InputError where it did not succeed."""
    if answer is None:
        silent = f"gave no answer within {duration_text(ANSWER)}"
        fault = silent if shutil.which(command) else "is not on this machine's PATH"
        raise InputError(f"{command} {fault}: submit jobs where the batch system's commands work")
    if answer.returncode:
        raise InputError(f"{command} refuses {script}: {' '.join((answer.stderr or answer.stdout).split())}")
    return answer.stdout.strip()


def mebibytes(memory: int) -> int:
    """Mebibytes that hold so many bytes."""
    return -(-memory // 2**20)

"""Batch systems: the head of a job's script, and submitting, asking about and cancelling jobs by commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipeline.declare.duration import duration_text
from stages.base.errors import InputError

ANSWER = 30.0
"""Seconds that a batch system gets to answer."""

KINDS = ("slurm", "pbs", "lsf", "sge", "htcondor", "oar")
"""Batch systems, by the names of their configuration in dask-jobqueue."""


OF_A_JOB = re.compile(
    r"SLURMD?_(JOB|ARRAY|RESTART|STEP|NTASKS|CPUS|MEM|NNODES|NODE|TASK|GTIDS|LOCALID|PROCID|GPUS|SUBMIT)"
    r"|PBS_(JOB|ARRAY|NODE|TASK|O_)|LSB_(JOB|DJOB|BATCH|HOSTS)"
)
"""Variables of the job that this process may be in: one that it submits would inherit them."""


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


class Answer(NamedTuple):
    """End of a command, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Wish:
    """Contents of the head of a job's script; None or empty leaves a thing to the batch system."""

    name: str
    output: str
    """Where both outputs go."""
    nodes: int = 1
    gpus: int = 0
    """Of each node."""
    cores: int | None = None
    """Of each node."""
    memory: int | None = None
    """Bytes of each node."""
    walltime: int | None = None
    """Seconds."""
    partition: str | None = None
    account: str | None = None
    tasks: int = 0
    """Of an array job, numbered from 0; 0: the job is none."""
    directives: tuple[str, ...] = ()
    """Further options, without the prefix."""

    def asks(self, *options: str) -> bool:
        """True if the further options have one of these."""
        return any(option in directive for directive in self.directives for option in options)


class BatchSystem(ABC):
    """A batch system, by its commands on the PATH of this machine."""

    kind: ClassVar[str]
    submission: ClassVar[str]
    cancellation: ClassVar[str]
    prefix: ClassVar[str]
    """What begins a line of options in a job's script."""
    task_variable: ClassVar[str] = ""
    """Variable that numbers the tasks of an array job from 0."""

    @abstractmethod
    def options(self, wish: Wish) -> list[str]:
        """Options for the head of a job's script. Raises InputError for what this system has no words for."""

    def gpu_directives(self, wish: Wish) -> list[str]:
        """Options that ask for the GPUs, unless the further ones do.

        Raises:
            InputError: each site has its own name for them, and no further option is given.
        """
        if wish.gpus and not wish.directives:
            raise InputError(
                f"{self.kind} has no common name for GPUs: ask for {wish.gpus} in `directives`, as the site "
                f"names them (often `-l gpu={wish.gpus}`)"
            )
        return []

    def head(self, wish: Wish) -> list[str]:
        """Lines for the head of a job's script."""
        return [f"{self.prefix} {option}" for option in (*self.options(wish), *wish.directives)]

    def on_each_node(self, wish: Wish) -> str:
        """Words before a command that a job is to run once on each of its nodes; empty for a single one."""
        if wish.nodes > 1:
            raise InputError(
                f"{self.kind} jobs of {wish.nodes} nodes are not known here: take one node a job"
            )
        return ""

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
        if answer is not None and not answer.code:
            return True
        return all(seen.state == State.ENDED for seen in self.look(jobs).values())

    @property
    def here(self) -> bool:
        """True if jobs can be submitted from this machine."""
        return shutil.which(self.submission) is not None

    @property
    def can_be_asked(self) -> bool:
        """False where nothing tells which jobs live."""
        return True


def batch_system(kind: str) -> BatchSystem:
    """The batch system of a name in `KINDS`."""
    module: Any = import_module(f"pipeline.running.clusters.batch.{kind}")
    return module.SYSTEM


def ask(*command: str, script: Path | None = None) -> Answer | None:
    """The answer to a command in plain English; None if there is none in time, or no such command.

    script: the command's standard input.
    """
    outside = {name: value for name, value in os.environ.items() if not OF_A_JOB.match(name)}
    environment = {**outside, "LC_ALL": "C"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    try:
        with open(script or os.devnull) as source:
            done = subprocess.run(command, stdin=source, timeout=ANSWER, check=False, **options)
    except (OSError, subprocess.SubprocessError):
        return None
    return Answer(done.returncode, done.stdout, done.stderr)


def submitted(answer: Answer | None, command: str, script: Path) -> str:
    """Output of a submission. Raises InputError where it did not succeed."""
    if answer is None:
        silent = f"gave no answer within {duration_text(ANSWER)}"
        fault = silent if shutil.which(command) else "is not on this machine's PATH"
        raise InputError(f"{command} {fault}: submit jobs where the batch system's commands work")
    if answer.code:
        raise InputError(f"{command} refuses {script}: {' '.join((answer.err or answer.out).split())}")
    return answer.out.strip()


def clock(seconds: int) -> str:
    """HH:MM:SS, with as many hours as there are."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def mebibytes(memory: int) -> int:
    """Mebibytes that hold so many bytes."""
    return -(-memory // 2**20)

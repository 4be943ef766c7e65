"""PBS Pro, OpenPBS and, as far as its commands agree, Torque: by qsub, qstat, qdel and pbsdsh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.batch import OVER, UNSEEN, BatchSystem, JobRequest, Seen, State, ask, mebibytes, submitted

ENDED = {"C", "F", "X"}
"""Completed, finished, expired; M was moved to another server, of which nothing is known here."""
MOVED = "M"
NOT_THERE = ("Unknown Job", "has finished")


class Pbs(BatchSystem):
    """PBS."""

    kind = "pbs"
    submission = "qsub"
    cancellation = "qdel"
    prefix = "#PBS"
    job_variable = "PBS_JOBID"
    task_variable = "PBS_ARRAY_INDEX"
    own_variables = "PBS_(JOB|ARRAY|NODE|TASK|O_)"
    dask_class = "PBSCluster"

    def options(self, job: JobRequest) -> list[str]:
        """Options of qsub; a directive `-l select=...` stands instead of the nodes' resources."""
        options = [f"-N {job.name}", f"-o {job.output}", "-j oe"]
        if not job.asks("select="):
            options.append(f"-l {selection(job)}")
        if job.nodes > 1 and not job.asks("place="):
            options.append("-l place=scatter")
        wanted = {
            "-l walltime=": self.clock(job.walltime) if job.walltime else None,
            "-q ": job.partition,
            "-A ": job.account,
            "-J ": f"0-{job.tasks - 1}" if job.tasks else None,
        }
        return [*options, *(f"{option}{value}" for option, value in wanted.items() if value is not None)]

    def gpu_directives(self, job: JobRequest) -> list[str]:
        """A selection of one node with GPUs, unless a directive has one."""
        return [f"-l {selection(job)}"] if job.gpus and not job.asks("select=") else []

    def on_each_node(self, job: JobRequest) -> str:
        """Once for each chunk of the selection; the command's environment is a bare one."""
        return "pbsdsh --" if job.nodes > 1 else ""

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by qsub."""
        when = ["-W", f"depend=afterany:{after}"] if after else []
        return submitted(ask("qsub", *when, str(script)), "qsub", script)

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask qstat; a job that it neither shows nor denies is unknown."""
        answer = ask("qstat", "-f", *jobs) if jobs else None
        if answer is None:
            return dict.fromkeys(jobs, UNSEEN)
        shown = dict(_blocks(answer.stdout))
        denied = [line for line in answer.stderr.splitlines() if any(words in line for words in NOT_THERE)]
        return {job: shown.get(_number(job)) or _denial(job, denied) for job in jobs}

    def dask_directives(self, job: JobRequest) -> dict[str, list[str]]:
        """A selection stands instead of that of dask-jobqueue."""
        options = super().dask_directives(job)
        selects = any("select=" in directive for directive in options.get("job_extra_directives", ()))
        return {**options, "job_directives_skip": ["select="]} if selects else options


def selection(job: JobRequest) -> str:
    """Resources of all nodes, a chunk each."""
    each = [f"ncpus={job.cores or 1}"]
    each += [f"ngpus={job.gpus}"] * bool(job.gpus)
    each += [f"mem={mebibytes(job.memory or 0)}mb"] * bool(job.memory)
    return f"select={job.nodes}:{':'.join(each)}"


def _blocks(text: str) -> list[tuple[str, Seen]]:
    """Jobs that `qstat -f` shows, by number."""
    found = []
    for block in re.split(r"^Job Id:\s*", text, flags=re.MULTILINE)[1:]:
        facts = dict(re.findall(r"^\s+(job_state|Job_Name) = (.*)$", block, flags=re.MULTILINE))
        letter = facts.get("job_state", MOVED).strip()
        state = State.ENDED if letter in ENDED else State.UNKNOWN if letter == MOVED else State.ALIVE
        found.append((_number(block.split()[0]), Seen(state, facts.get("Job_Name", "").strip())))
    return found


def _denial(job: str, denied: Sequence[str]) -> Seen:
    named = re.compile(rf"(?<![\w.]){re.escape(_number(job))}(?![\w\[])")
    return OVER if any(named.search(line) for line in denied) else UNSEEN


def _number(job: str) -> str:
    """The number of a job, without its server."""
    return job.split(".")[0]


SYSTEM = Pbs()

"""PBS Pro, OpenPBS and, as far as its commands agree, Torque: by qsub, qstat, qdel and pbsdsh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.running.clusters.batch import (
    OVER,
    UNSEEN,
    BatchSystem,
    Seen,
    State,
    Wish,
    ask,
    clock,
    mebibytes,
    submitted,
)

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
    task_variable = "PBS_ARRAY_INDEX"

    def options(self, wish: Wish) -> list[str]:
        """Options of qsub; a directive `-l select=...` stands instead of the nodes' resources."""
        options = [f"-N {wish.name}", f"-o {wish.output}", "-j oe"]
        if not wish.asks("select="):
            options.append(f"-l {selection(wish)}")
        if wish.nodes > 1 and not wish.asks("place="):
            options.append("-l place=scatter")
        wanted = {
            "-l walltime=": clock(wish.walltime) if wish.walltime else None,
            "-q ": wish.partition,
            "-A ": wish.account,
            "-J ": f"0-{wish.tasks - 1}" if wish.tasks else None,
        }
        return [*options, *(f"{option}{value}" for option, value in wanted.items() if value is not None)]

    def gpu_directives(self, wish: Wish) -> list[str]:
        """A selection of one node with GPUs, unless a directive has one."""
        return [f"-l {selection(wish)}"] if wish.gpus and not wish.asks("select=") else []

    def on_each_node(self, wish: Wish) -> str:
        """Once for each chunk of the selection; the command's environment is a bare one."""
        return "pbsdsh --" if wish.nodes > 1 else ""

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by qsub."""
        when = ["-W", f"depend=afterany:{after}"] if after else []
        return submitted(ask("qsub", *when, str(script)), "qsub", script)

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask qstat; a job that it neither shows nor denies is unknown."""
        answer = ask("qstat", "-f", *jobs) if jobs else None
        if answer is None:
            return dict.fromkeys(jobs, UNSEEN)
        shown = dict(_blocks(answer.out))
        denied = [line for line in answer.err.splitlines() if any(words in line for words in NOT_THERE)]
        return {job: shown.get(_number(job)) or _denial(job, denied) for job in jobs}


def selection(wish: Wish) -> str:
    """Resources of all nodes, a chunk each."""
    each = [f"ncpus={wish.cores or 1}"]
    each += [f"ngpus={wish.gpus}"] * bool(wish.gpus)
    each += [f"mem={mebibytes(wish.memory or 0)}mb"] * bool(wish.memory)
    return f"select={wish.nodes}:{':'.join(each)}"


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

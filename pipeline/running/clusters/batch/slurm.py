"""Slurm, by sbatch, squeue, scancel and srun."""

from __future__ import annotations

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

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
"""States in which no process of a job is left; all others are alive."""


class Slurm(BatchSystem):
    """Slurm."""

    kind = "slurm"
    submission = "sbatch"
    cancellation = "scancel"
    prefix = "#SBATCH"
    task_variable = "SLURM_ARRAY_TASK_ID"

    def options(self, wish: Wish) -> list[str]:
        """Options of sbatch."""
        wanted = {
            "job-name": wish.name,
            "output": wish.output,
            "nodes": wish.nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": wish.cores,
            "mem": f"{mebibytes(wish.memory)}M" if wish.memory else None,
            "time": clock(wish.walltime) if wish.walltime else None,
            "partition": wish.partition,
            "account": wish.account,
            "array": f"0-{wish.tasks - 1}" if wish.tasks else None,
        }
        asked = [f"--{option}={value}" for option, value in wanted.items() if value is not None]
        return [*asked, *self.gpu_directives(wish)]

    def gpu_directives(self, wish: Wish) -> list[str]:
        """Generic resources of a node, unless a directive names them."""
        named = wish.asks("--gres", "--gpus", "-G ")
        return [f"--gres=gpu:{wish.gpus}"] if wish.gpus and not named else []

    def on_each_node(self, wish: Wish) -> str:
        """A step of one task on each node, beside other steps."""
        cores = f" --cpus-per-task={wish.cores}" if wish.cores else ""
        return f"srun --overlap --nodes={wish.nodes} --ntasks={wish.nodes} --ntasks-per-node=1{cores}"

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by sbatch."""
        when = [f"--dependency=afterany:{after}"] if after else []
        return submitted(ask("sbatch", "--parsable", *when, str(script)), "sbatch", script).split(";")[0]

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask squeue for the jobs alone. Array jobs and their tasks have ids of either form, 7_3 or 12."""
        if not jobs:
            return {}
        answer = ask("squeue", "-h", "-r", "-j", ",".join(jobs), "-o", "%i|%A|%F|%T|%j")
        if answer is None or (answer.code and "Invalid job id" not in answer.err):
            return dict.fromkeys(jobs, UNSEEN)
        seen: dict[str, Seen] = {}
        for line in answer.out.splitlines():
            *ids, state, name = line.split("|", maxsplit=4)
            if state not in ENDED:
                seen |= dict.fromkeys(ids, Seen(State.ALIVE, name))
        return {job: seen.get(job, OVER) for job in jobs}


SYSTEM = Slurm()

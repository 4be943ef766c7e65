"""Slurm, by sbatch, squeue, scancel and srun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.batch import OVER, UNSEEN, BatchSystem, JobRequest, Seen, State, ask, mebibytes, submitted

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
    job_variable = "SLURM_JOB_ID"
    task_variable = "SLURM_ARRAY_TASK_ID"
    own_variables = (
        "SLURMD?_(JOB|ARRAY|RESTART|STEP|NTASKS|CPUS|MEM|NNODES|NODE|TASK|GTIDS|LOCALID|PROCID|GPUS|SUBMIT)"
    )
    dask_class = "SLURMCluster"

    def options(self, job: JobRequest) -> list[str]:
        """Options of sbatch."""
        wanted = {
            "job-name": job.name,
            "output": job.output,
            "nodes": job.nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": job.cores,
            "mem": f"{mebibytes(job.memory)}M" if job.memory else None,
            "time": self.clock(job.walltime) if job.walltime else None,
            "partition": job.partition,
            "account": job.account,
            "array": f"0-{job.tasks - 1}" if job.tasks else None,
        }
        asked = [f"--{option}={value}" for option, value in wanted.items() if value is not None]
        return [*asked, *self.gpu_directives(job)]

    def gpu_directives(self, job: JobRequest) -> list[str]:
        """Generic resources of a node, unless a directive names them."""
        named = job.asks("--gres", "--gpus", "-G ")
        return [f"--gres=gpu:{job.gpus}"] if job.gpus and not named else []

    def on_each_node(self, job: JobRequest) -> str:
        """A step of one task on each node, beside other steps."""
        cores = f" --cpus-per-task={job.cores}" if job.cores else ""
        return f"srun --overlap --nodes={job.nodes} --ntasks={job.nodes} --ntasks-per-node=1{cores}"

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by sbatch."""
        when = [f"--dependency=afterany:{after}"] if after else []
        return submitted(ask("sbatch", "--parsable", *when, str(script)), "sbatch", script).split(";")[0]

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask squeue for the jobs alone. Array jobs and their tasks have ids of either form, 7_3 or 12."""
        if not jobs:
            return {}
        answer = ask("squeue", "-h", "-r", "-j", ",".join(jobs), "-o", "%i|%A|%F|%T|%j")
        if answer is None or (answer.returncode and "Invalid job id" not in answer.stderr):
            return dict.fromkeys(jobs, UNSEEN)
        seen: dict[str, Seen] = {}
        for line in answer.stdout.splitlines():
            *ids, state, name = line.split("|", maxsplit=4)
            if state not in ENDED:
                seen |= dict.fromkeys(ids, Seen(State.ALIVE, name))
        return {job: seen.get(job, OVER) for job in jobs}

    def job_of(self, variables: Mapping[str, str]) -> tuple[str, int]:
        """Id as its submission names it, for tasks of array jobs too; how often it was queued again."""
        job = variables.get(self.job_variable, "")
        array, task = variables.get("SLURM_ARRAY_JOB_ID"), variables.get(self.task_variable)
        if job and array and task:
            job = f"{array}_{task}"
        return job, int(variables.get("SLURM_RESTART_COUNT") or 0)


SYSTEM = Slurm()

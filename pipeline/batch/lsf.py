"""LSF, by bsub, bjobs, bkill and blaunch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.batch import OVER, UNSEEN, BatchSystem, JobRequest, Seen, State, ask, mebibytes, submitted
from stages.base.errors import InputError

STATES = {
    **dict.fromkeys(("DONE", "EXIT"), State.ENDED),
    **dict.fromkeys(("PEND", "PSUSP", "RUN", "USUSP", "SSUSP", "WAIT", "PROV", "FWD_PEND"), State.ALIVE),
}
"""All others (UNKWN, ZOMBI) say that the job's host is out of reach."""


class Lsf(BatchSystem):
    """LSF."""

    kind = "lsf"
    submission = "bsub"
    cancellation = "bkill"
    prefix = "#BSUB"
    job_variable = "LSB_JOBID"
    own_variables = "LSB_(JOB|DJOB|BATCH|HOSTS)"
    dask_class = "LSFCluster"
    account_word = "project"

    def options(self, job: JobRequest) -> list[str]:
        """Options of bsub."""
        if job.tasks:
            raise InputError("array jobs of lsf are not known here: submit single jobs")
        cores = job.cores or 1
        options = [f"-J {job.name}", f"-o {job.output}", f"-n {cores * job.nodes}"]
        options += [f'-R "span[ptile={cores}]"']
        options += self.gpu_directives(job)
        wanted = {
            "-M": f"{mebibytes(job.memory)}MB" if job.memory else None,
            "-W": f"{-(-job.walltime // 60)}" if job.walltime else None,
            "-q": job.partition,
            "-P": job.account,
        }
        return [*options, *(f"{option} {value}" for option, value in wanted.items() if value is not None)]

    def gpu_directives(self, job: JobRequest) -> list[str]:
        """GPUs of each host, unless a directive names them."""
        named = job.asks("-gpu", "ngpus")
        return [f'-gpu "num={job.gpus}"'] if job.gpus and not named else []

    def on_each_node(self, job: JobRequest) -> str:
        """Once on each host of the job."""
        return 'blaunch -z "$(sort -u "$LSB_DJOB_HOSTFILE" | xargs)"' if job.nodes > 1 else ""

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by bsub, which reads the script from its standard input."""
        when = ["-w", f"ended({after})"] if after else []
        said = submitted(ask("bsub", *when, script=script), "bsub", script)
        if not (match := re.search(r"Job <(\d+)>", said)):
            raise InputError(f"bsub submits {script}, and does not say as which job: {said}")
        return match[1]

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask bjobs; a job that it neither shows nor denies is unknown."""
        columns = "jobid stat job_name delimiter='|'"
        answer = ask("bjobs", "-noheader", "-o", columns, *jobs) if jobs else None
        if answer is None:
            return dict.fromkeys(jobs, UNSEEN)
        rows = [line.split("|", maxsplit=2) for line in answer.stdout.splitlines() if line.count("|") > 1]
        shown = {job: Seen(STATES.get(stat, State.UNKNOWN), name) for job, stat, name in rows}
        denied = set(re.findall(r"Job <(\d+)> is not found", answer.stderr))
        return {job: shown.get(job, OVER if job in denied else UNSEEN) for job in jobs}

    def clock(self, seconds: int) -> str:
        """HH:MM, which holds them."""
        return super().clock(60 * -(-seconds // 60))[:-3]

    def seconds(self, walltime: object) -> int:
        """Seconds of a walltime, which may be HH:MM."""
        return super().seconds(f"{walltime}:00" if re.fullmatch(r"\d+:\d\d", str(walltime)) else walltime)


SYSTEM = Lsf()

"""LSF, by bsub, bjobs, bkill and blaunch."""

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
    mebibytes,
    submitted,
)
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

    def options(self, wish: Wish) -> list[str]:
        """Options of bsub."""
        if wish.tasks:
            raise InputError("array jobs of lsf are not known here: submit single jobs")
        cores = wish.cores or 1
        options = [f"-J {wish.name}", f"-o {wish.output}", f"-n {cores * wish.nodes}"]
        options += [f'-R "span[ptile={cores}]"']
        options += self.gpu_directives(wish)
        wanted = {
            "-M": f"{mebibytes(wish.memory)}MB" if wish.memory else None,
            "-W": f"{-(-wish.walltime // 60)}" if wish.walltime else None,
            "-q": wish.partition,
            "-P": wish.account,
        }
        return [*options, *(f"{option} {value}" for option, value in wanted.items() if value is not None)]

    def gpu_directives(self, wish: Wish) -> list[str]:
        """GPUs of each host, unless a directive names them."""
        named = wish.asks("-gpu", "ngpus")
        return [f'-gpu "num={wish.gpus}"'] if wish.gpus and not named else []

    def on_each_node(self, wish: Wish) -> str:
        """Once on each host of the job."""
        return 'blaunch -z "$(sort -u "$LSB_DJOB_HOSTFILE" | xargs)"' if wish.nodes > 1 else ""

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
        rows = [line.split("|", maxsplit=2) for line in answer.out.splitlines() if line.count("|") > 1]
        shown = {job: Seen(STATES.get(stat, State.UNKNOWN), name) for job, stat, name in rows}
        denied = set(re.findall(r"Job <(\d+)> is not found", answer.err))
        return {job: shown.get(job, OVER if job in denied else UNSEEN) for job in jobs}


SYSTEM = Lsf()

"""Grid Engine and its descendants, by qsub, qstat and qdel."""

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
    submitted,
)
from stages.base.errors import InputError


class Sge(BatchSystem):
    """Grid Engine. Sites have their own names for GPUs, memory and several cores: directives ask for them."""

    kind = "sge"
    submission = "qsub"
    cancellation = "qdel"
    prefix = "#$"

    def options(self, wish: Wish) -> list[str]:
        """Options of qsub."""
        if wish.tasks:
            raise InputError("array jobs of sge are not known here: submit single jobs")
        self.gpu_directives(wish)
        wanted = {
            "-l h_rt=": clock(wish.walltime) if wish.walltime else None,
            "-q ": wish.partition,
            "-P ": wish.account,
        }
        asked = [f"{option}{value}" for option, value in wanted.items() if value is not None]
        return [f"-N {wish.name}", f"-o {wish.output}", "-j y", "-cwd", *asked]

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit by qsub."""
        when = ["-hold_jid", after] if after else []
        return submitted(ask("qsub", "-terse", *when, str(script)), "qsub", script).split(".")[0]

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Ask qstat for each job, which has no terse form that names several."""
        return {job: _seen(job) for job in jobs}


def _seen(job: str) -> Seen:
    answer = ask("qstat", "-j", job)
    if answer is None:
        return UNSEEN
    if not answer.code and (name := re.search(r"^job_name:\s*(.*)$", answer.out, flags=re.MULTILINE)):
        return Seen(State.ALIVE, name[1].strip())
    return OVER if "jobs do not exist" in answer.out + answer.err else UNSEEN


SYSTEM = Sge()

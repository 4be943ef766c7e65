"""Start of a campaign's job, `python -m workflows.campaign FOLDER CHAIN`: the end of its script.

Imports nothing but Python's own before the ledger can be told that the rest cannot be imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
"""Variables with the job's id, as in `pipeline.batch`; a job without them is named by its process."""


def main(place: Path, chain: int) -> int:
    """Be a job; returns its exit code."""
    try:
        from workflows.campaign.job import command
    except Exception as error:  # of whatever is installed here
        traceback.print_exc()
        _note_death(place, chain, f"it died at its start: {type(error).__name__}: {error}")
        return 1
    return command(place, chain)


def _note_death(place: Path, chain: int, reason: str) -> None:
    """Enter a job that began and ended at once into the ledger, see `pipeline.store.ledger`."""
    job = next(filter(None, map(os.environ.get, JOBS)), str(os.getpid()))
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    common = {"format": 1, "time": time.time(), "campaign": place.name, "job": job, "chain": chain}
    nothing = {"seconds": 0.0, "node_seconds": 0.0, "joules": None, "commits": 0, "missing": None}
    lines = [{**common, "event": "began", "missing": None}, {**common, "event": "ended", **nothing}]
    lines[-1]["reason"] = reason
    with open(place.parents[1] / ".ledger.jsonl", "a") as ledger:
        ledger.write("".join(f"\n{json.dumps(line)}\n" for line in lines))  # what is before may be cut off


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

"""The batch system's word on whether the job of a driver has ended."""

from __future__ import annotations

import subprocess

from pipeline.store.driver import Driver

ANSWER = 30.0
"""Seconds that a batch system gets to answer."""

UNKNOWN = "Invalid job id"

GOES_ON = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STOPPED")
"""States of a job that has not ended; it ends its processes while it is completing."""


def job_has_ended(driver: Driver) -> bool | None:
    """True if its batch system says so, None if that does not answer or is not here."""
    if driver.system != "slurm":
        return None
    try:
        command = ["squeue", "--noheader", f"--jobs={driver.job}", "--states=all", "--format=%T"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER)
    except (OSError, subprocess.SubprocessError):
        return None
    if answer.returncode:
        return True if UNKNOWN in answer.stderr else None
    return not any(state.startswith(GOES_ON) for state in answer.stdout.split())

"""The script of a campaign's job: scheduler, workers and driver in one, and nothing to do by hand."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from pipeline.running.clusters import NO_EMPTY_PATH, SAFE_PATH
from pipeline.store.durable import write_atomically
from workflows.campaign.definition import Campaign

BEGAN = "QUARKLINE_JOB_BEGAN"
"""Variable with the time, in seconds since 1970, at which the job began."""


def write_script(campaign: Campaign, chain: int | None = None) -> Path:
    """The script of a chain's next job, or of the first jobs of all chains, as an array job of several."""
    label = "first" if chain is None else f"chain-{chain}"
    path = campaign.place / f"{label}.sh"
    write_atomically(path, script(campaign, chain))
    path.chmod(0o700)
    return path


def script(campaign: Campaign, chain: int | None = None) -> str:
    """Text of the script."""
    several = chain is None and campaign.chains > 1
    site, system = campaign.site.settled(), campaign.system
    output = campaign.place / ("job-%A.out" if several and site.kind == "slurm" else "job.out")
    job = site.job(campaign.name, str(output), campaign.nodes, campaign.chains if several else 0)
    number = f'"${system.task_variable}"' if several else str(chain or 0)
    lines = [
        "#!/bin/bash",
        *system.head(replace(job, walltime=campaign.walltime)),
        f"# Job of campaign {campaign.name}: computes what the store lacks, followed by one more.",
        *(f"export {name}={value}" for name, value in SAFE_PATH.items()),
        f"export {BEGAN}=$(date +%s)",
        *site.exports,
        *(site.prologue or ()),
        NO_EMPTY_PATH,
        f"cd {shlex.quote(str(campaign.folder))}",
        f"exec {site.interpreter} -m workflows.campaign {shlex.quote(str(campaign.place))} {number}",
    ]
    return "\n".join(lines) + "\n"

"""`quarkline submit`: have jobs of a batch system compute a workflow until nothing is missing."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline import InputError, Store, explain
from pipeline.batch import KINDS
from pipeline.running.clusters.section import ClusterSection
from workflows.campaign.definition import Budget, Campaign, label_of
from workflows.campaign.queue import Submission, begin, refuse_second, stop_all
from workflows.campaign.script import script
from workflows.cluster_choice import chosen_site, of_results
from workflows.commands.options import (
    CheckOption,
    GpusPerWorkerOption,
    JsonOption,
    SetOption,
    StoreOption,
    WorkflowFile,
    count_option,
)
from workflows.documents import Document
from workflows.rounds import Rounds
from workflows.shared.definition import Project
from workflows.stores import project_and_store, remarks

DOCUMENT = Document("submit", Submission)


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise typer.BadParameter(f"{text!r} is no number above 0")
    return value


Chains = Annotated[
    int | None,
    count_option("Jobs at a time, each a driver with its workers; they share the store.", "1", "--jobs"),
]
Nodes = Annotated[int | None, count_option("Nodes of each job.", "1", "--nodes")]


def submit(
    workflow: WorkflowFile,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="FILE", help="File about the batch system; default: the section `cluster`."
        ),
    ] = None,
    changes: SetOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    chains: Chains = None,
    nodes: Nodes = None,
    node_hours: Annotated[
        float | None,
        typer.Option("--node-hours", metavar="X", parser=positive, help="Budget of all jobs together."),
    ] = None,
    joules: Annotated[
        float | None,
        typer.Option(
            "--joules", metavar="X", parser=positive, help="Budget of energy, where it is measured."
        ),
    ] = None,
    check: CheckOption = None,
    store: StoreOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop what was submitted for this workflow's store.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the job's script; submit nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Submit batch jobs that compute a workflow, one after the other until nothing is missing.

    A job holds the driver and its workers, and ends before its walltime does. When it begins, it submits its
    successor, so neither a kill nor the loss of a node ends the campaign. The campaign ends after two jobs in
    a row that computed nothing, or when its budget is spent.

    With --jobs N there are N jobs at a time, each with its share of the configurations.

    Nothing runs on the login node. With the same file, `quarkline run WORKFLOW --cluster site.yaml` runs the
    driver there (for instance in tmux), with worker jobs that come and go.

    Exit code: 0 submitted (or stopped, or nothing is missing), 2 a mistake in the command or a file, or jobs
    of this store are queued already.

    Example: quarkline submit my.yaml --cluster site.yaml --jobs 4 --node-hours 200

    Example: quarkline submit my.yaml --stop
    """
    project, results = project_and_store(workflow, store, of_results(changes))
    if stop:
        submission = stop_all(results)
    else:
        site = chosen_site(workflow, cluster, changes, gpus_per_worker)
        campaign = Campaign(
            name=f"{label_of(project.workflow.name)}-{secrets.token_hex(3)}",
            workflow=workflow.absolute(),
            store=results.path,
            folder=Path.cwd(),
            site=site,
            nodes=nodes or 1,
            chains=chains or 1,
            walltime=_walltime(site, workflow),
            budget=Budget(node_hours, joules),
            check=check,
            changes=tuple(of_results(changes)),
        )
        submission = _submitted(project, workflow, store, campaign, dry_run)
    DOCUMENT.show(submission, text=submission.text, as_json=json)


def _walltime(site: ClusterSection, workflow: Path) -> int:
    """Seconds of a job. Raises InputError where a cluster has no jobs."""
    if site.kind not in KINDS:
        raise InputError(
            f"kind {site.kind} is no batch system: write `cluster: {{kind: slurm}}` or another of "
            f"{', '.join(KINDS)} into {workflow}, or name a file by --cluster; `quarkline run` needs none"
        )
    walltime = site.settled().walltime
    if walltime is None:
        raise InputError("a job must know its walltime: write `walltime` in the `cluster` section")
    return walltime


def _submitted(
    project: Project, workflow: Path, wanted: Path | None, campaign: Campaign, dry_run: bool
) -> Submission:
    store = Store(campaign.store)
    planned = Rounds(project, store, campaign.site.backend).plan
    warnings = [*project.warnings, *remarks(planned, project, workflow, wanted)]
    facts: dict[str, Any] = {"store": store.path, "missing": len(planned.missing), "warnings": warnings}
    if not planned.missing:
        return Submission(text=f"nothing is missing in {store.path}: `quarkline report` shows it", **facts)
    if dry_run:
        return Submission(text=script(campaign), **facts)
    store.create()
    refuse_second(store)
    jobs = begin(campaign)
    first, *_ = explain(planned).splitlines()
    file = f"{workflow}{project.options}"
    text = "\n".join(
        [
            *(f"warning: {warning}" for warning in warnings),
            first,
            f"campaign {campaign.name}: job {', '.join(jobs)}; scripts and outputs in {campaign.place}",
            f"watch: quarkline status {store.path}; stop: quarkline submit {file} --stop",
        ]
    )
    return Submission(text=text, campaign=campaign.name, jobs=jobs, **facts)

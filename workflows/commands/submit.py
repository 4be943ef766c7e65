"""`quarkline submit`: have jobs of a batch system compute a workflow until nothing is missing."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workflows.commands.options import (
    CheckOption,
    GpusPerWorkerOption,
    JsonOption,
    SetOption,
    StoreOption,
    WorkflowFile,
    count_option,
    say,
)
from workflows.commands.target import remarks, store_of

if TYPE_CHECKING:
    from pipeline import Store
    from pipeline.running.clusters.section import ClusterSection
    from workflows.campaign.definition import Budget, Campaign
    from workflows.outputs.campaigns import SubmitOutput
    from workflows.shared.definition import Project


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
            "--cluster", metavar="FILE", help="File about the batch system; else the section `cluster`."
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
            "--joules", metavar="X", parser=positive, help="Likewise of energy, where it is measured."
        ),
    ] = None,
    check: CheckOption = None,
    store: StoreOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop what was submitted for this workflow's store.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the job's script and print it; submit nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Have jobs of a batch system compute a workflow, one after the other until nothing is missing.

    A job holds the driver and its workers. It ends before its walltime does, and the one that follows it goes
    on; that is submitted as soon as a job begins, so that neither a kill nor the loss of a node ends a
    campaign. Two jobs in a row that bring nothing end it, and so does its budget.

    With --jobs N there are N jobs at a time, each with its share of the configurations.

    Nothing stays on the login node. The other way, a driver there with worker jobs that come and go, is
    `quarkline run WORKFLOW --cluster site.yaml`, by the same file (in tmux: it lasts as long as the run).

    Exit code: 0 submitted (or stopped, or nothing is missing), 2 a mistake in the command or a file, or jobs
    of this store are queued already.

    Example: quarkline submit my.yaml --cluster site.yaml --jobs 4 --node-hours 200

    Example: quarkline submit my.yaml --stop
    """
    from workflows.campaign.queue import stop_all
    from workflows.catalogue import load_project

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    if stop:
        output = stop_all(results)
    else:
        from workflows.campaign.definition import Budget
        from workflows.cluster_choice import chosen_site

        site = chosen_site(workflow, cluster, changes or (), gpus_per_worker)
        budget = Budget(node_hours, joules)
        campaign = _campaign(project, workflow, results, site, nodes or 1, chains or 1, budget)
        output = _submitted(project, workflow, store, replace(campaign, check=check), dry_run)
    if json:
        output.print()
    else:
        say(output.text)


def _campaign(
    project: Project,
    workflow: Path,
    results: Store,
    site: ClusterSection,
    nodes: int,
    chains: int,
    budget: Budget,
) -> Campaign:
    from pipeline import InputError
    from pipeline.batch import KINDS
    from workflows.campaign.definition import Campaign, label_of

    if site.kind not in KINDS:
        raise InputError(
            f"kind {site.kind} is no batch system: write `cluster: {{kind: slurm}}` or another of "
            f"{', '.join(KINDS)} into {workflow}, or name a file by --cluster; `quarkline run` needs none"
        )
    settled = site.settled()
    if settled.walltime is None:
        raise InputError("a job must know its walltime: write `walltime` in the `cluster` section")
    name = f"{label_of(project.workflow.name)}-{secrets.token_hex(3)}"
    return Campaign(
        name, workflow.absolute(), results.path, Path.cwd(), site, nodes, chains, settled.walltime, budget
    )


def _submitted(
    project: Project, workflow: Path, wanted: Path | None, campaign: Campaign, dry_run: bool
) -> SubmitOutput:
    from pipeline import Store, explain
    from workflows.campaign.queue import begin, refuse_second
    from workflows.campaign.script import script
    from workflows.outputs.campaigns import SubmitOutput
    from workflows.rounds import Rounds

    store = Store(campaign.store)
    planned = Rounds(project, store, campaign.site.backend).plan
    warnings = [*project.warnings, *remarks(planned, project, workflow, wanted)]
    facts: dict[str, Any] = {"store": store.path, "missing": len(planned.missing), "warnings": warnings}
    if not planned.missing:
        return SubmitOutput(text=f"nothing is missing in {store.path}: `quarkline report` shows it", **facts)
    if dry_run:
        return SubmitOutput(text=script(campaign), **facts)
    store.create()
    refuse_second(store)
    jobs = begin(campaign)
    first, *_ = explain(planned).splitlines()
    text = "\n".join(
        [
            *(f"warning: {warning}" for warning in warnings),
            first,
            f"campaign {campaign.name}: job {', '.join(jobs)}; scripts and outputs in {campaign.place}",
            f"watch: quarkline status {store.path}; stop: quarkline submit {workflow} --stop",
        ]
    )
    return SubmitOutput(text=text, campaign=campaign.name, jobs=jobs, **facts)

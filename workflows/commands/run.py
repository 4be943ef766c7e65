"""`quarkline run`: compute what is missing, then write the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from pipeline import InputError
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.choose import cluster_of
from pipeline.running.clusters.section import ClusterSection, Workers
from workflows.cluster_choice import chosen_site, of_results
from workflows.commands.options import (
    CheckOption,
    ClusterOption,
    GpusPerWorkerOption,
    JsonOption,
    SetOption,
    StoreOption,
    TimeLimitOption,
    WorkflowFile,
    count_option,
    port,
)
from workflows.computing import Computed, Computing, carry_out
from workflows.documents import Document
from workflows.stores import project_and_store


@dataclass(frozen=True)
class RunOutput:
    """The outcome of a run, of its last round where it has several; `seconds` is of all rounds."""

    run: str
    workflow: str
    states: dict[str, dict[str, int]]
    """Per node, how many of its missing chunks ended in each state."""
    failures: list[str]
    stopped: str
    """Why the run ended before its work did; empty where it did not."""
    seconds: float
    report: Path | None
    warnings: list[str]
    partial: str | None
    """Configurations that the results are of, where they are not of all."""
    error: str | None
    """Why the report could not be written."""
    target_met: bool | None
    """Of a workflow with a target whose round is complete."""
    target: str | None
    checks: dict[str, int]
    """Against silent errors: chunks `repeated` in part, checks that `disagreed`, chunks `retracted`."""


DOCUMENT = Document("run", RunOutput)


def run(
    workflow: WorkflowFile,
    cluster: ClusterOption = None,
    changes: SetOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    workers: Annotated[
        int | None,
        count_option(
            "Number of worker processes, each with its own GPUs; no more start than tasks are ready.",
            "as in the cluster's section, or as many as are useful",
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
    check: CheckOption = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            parser=port,
            help="Port of the dashboard on 127.0.0.1, for an ssh tunnel; an error if it is in use.",
            show_default="any free port",
        ),
    ] = None,
    store: StoreOption = None,
    share: Annotated[
        bool,
        typer.Option("--share", help="Share the store with other runs; each computes a part."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compute the missing results of a workflow, then write the report.

    You may interrupt it, kill it, or edit the file: the same command continues with exactly what is
    missing. A failed piece does not stop the others. Averages and the report then contain only the complete
    configurations, and the report says so on every page. The report is not rewritten if nothing has
    changed. Runs with other --set share the store, and each needs a folder for its report (see the last
    example): a warning says that a report of another file or --set will be replaced.

    A file with a `target` runs in rounds, each with more noise vectors, until the error is small enough.

    With --share several of these commands, on one machine or many, work on one store. Each claims chunks (the
    units of work) before it computes them, claims of a command that died expire, and the last command writes
    averages and the report.

    Exit code: 0 complete, 1 something failed or a target was missed, 2 a mistake in the command or the file,
    3 stopped by the time limit, for lack of workers or by failed checks, 4 other runs compute the rest,
    130 interrupted.

    Example: quarkline run workflows/g2_disconnected.yaml

    Example: quarkline run my.yaml --cluster cuda --time-limit 11h30m

    Example: quarkline run my.yaml --cluster site.yaml --set cluster.walltime=02:00:00

    Example: quarkline run my.yaml --set masses.light=0.02 --set report=report-0.02
    """
    began = monotonic()
    project, results = project_and_store(workflow, store, of_results(changes))
    chosen = _cluster(chosen_site(workflow, cluster, changes, gpus_per_worker), workers, dashboard_port)
    limit = None if time_limit is None else began + time_limit
    computing = Computing(
        project, workflow, store, results, chosen, limit, share=share, check=check, quiet=json
    )
    computing.dashboard_port = dashboard_port or 0
    computed = carry_out(computing)
    if json:
        DOCUMENT.print(_output(computed))
    raise typer.Exit(computed.exit_code)


def _cluster(site: ClusterSection, workers: int | None, dashboard_port: int | None) -> Cluster:
    if workers and site.kind in ("address", "ssh"):
        where = site.where or "hosts"
        raise InputError(f"--workers {workers}: the workers of {where} are given elsewhere; leave it out")
    if dashboard_port and site.kind == "address":
        raise InputError(
            f"--dashboard-port {dashboard_port}: the dashboard of {site.where} is started elsewhere; leave "
            "it out"
        )
    number = Workers(min=workers, max=workers) if workers else site.workers
    return cluster_of(site.model_copy(update={"workers": number}))


def _output(computed: Computed) -> RunOutput:
    """The outcome of the last round, and what its results lead to."""
    outcome, step = computed.rounds.outcomes[-1], computed.rounds.last_step
    return RunOutput(
        run=outcome.run,
        workflow=outcome.workflow,
        states={
            node: {str(state): n for state, n in counts.items()} for node, counts in outcome.states.items()
        },
        failures=[str(failure) for failure in outcome.failures],
        stopped=outcome.stopped,
        seconds=sum(each.seconds for each in computed.rounds.outcomes),
        report=computed.page,
        warnings=computed.warnings,
        partial=computed.mark or None,
        error=computed.fault or None,
        target_met=step.met if step else None,
        target=step.text if step else None,
        checks=asdict(outcome.checks),
    )

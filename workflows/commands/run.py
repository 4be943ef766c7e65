"""`quarkline run`: compute what is missing, then write the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    tell,
)
from workflows.commands.target import remarks, store_of

if TYPE_CHECKING:
    from pipeline import Outcome, Plan, Store
    from pipeline.running.clusters import Cluster
    from pipeline.running.clusters.section import ClusterSection
    from workflows.partial import Part
    from workflows.rounds import Rounds
    from workflows.shared.definition import Project

INTERRUPTED = 130
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def run(
    workflow: WorkflowFile,
    cluster: ClusterOption = None,
    changes: SetOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    workers: Annotated[
        int | None,
        count_option(
            "Worker processes, with GPUs of their own; no more start than the plan has work for at a time.",
            "as in the cluster's section, or as many as are of use",
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
    check: CheckOption = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            parser=port,
            help="Port of the dashboard on 127.0.0.1, for an ssh tunnel; refused where it is taken.",
            show_default="any free port",
        ),
    ] = None,
    store: StoreOption = None,
    share: Annotated[
        bool,
        typer.Option("--share", help="Be one of several drivers of the store; each computes its share."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compute what a workflow file asks for and the store does not hold yet, then write the report.

    Interrupt it, kill it, or edit the file: the same command goes on with exactly what is missing. A failed
    piece does not stop the others: averages and the report are then of the configurations that are complete,
    and say so on every page.

    A file with a `target` runs in rounds, each with more noise vectors, until the error is small enough.

    With --share several of these commands, on one machine or many, work on one store: each claims chunks
    before it computes them, claims of one that died are void, and the last one makes averages and the report.

    Exit code: 0 complete, 1 something failed or a target was missed, 2 a mistake in the command or the file,
    3 stopped by the time limit, 4 the rest is in work by other drivers, 130 interrupted.

    Example: quarkline run workflows/g2_disconnected.yaml

    Example: quarkline run my.yaml --cluster cuda --time-limit 11h30m

    Example: quarkline run my.yaml --cluster site.yaml --set cluster.walltime=02:00:00
    """
    from workflows.catalogue import load_project
    from workflows.cluster_choice import chosen_site

    began, project = monotonic(), load_project(workflow)
    chosen = _cluster(chosen_site(workflow, cluster, changes or (), gpus_per_worker), workers, dashboard_port)
    limit = None if time_limit is None else began + time_limit
    results = store_of(project, workflow, store)
    round_ = Round(project, workflow, store, results, chosen, limit, share=share, check=check, quiet=json)
    round_.dashboard_port = dashboard_port or 0
    raise typer.Exit(carry_out(round_).exit_code)


def carry_out(compute: Round) -> Carried:
    """Compute round after round, then write the report of what there is.

    What decisions or the report read and find damaged is computed again, each chunk once.

    Raises:
        InputError: the report cannot be written, and nobody reads JSON.
    """
    from pipeline.reading.verification import with_sound_chunks

    return with_sound_chunks(compute.results, lambda: _carried_out(compute), compute.tell)


def _carried_out(compute: Round) -> Carried:
    """Compute and report once. Raises DamagedChunkError, InputError."""
    from pipeline import InputError
    from workflows.rounds import Rounds

    project, results = compute.project, compute.results
    for warning in project.warnings:
        compute.tell(f"warning: {warning}")
    rounds = Rounds(project, results, compute.cluster.backend)
    rounds.drive(compute, compute.tell)
    part = _results(rounds, results, compute)
    page, fault = _publish(part, results)
    if compute.quiet:
        warnings = [*rounds.project.warnings, *compute.remarks]
        _print_json(rounds, warnings, page, fault, part.mark(results) if part else "")
    if fault:
        remedy = f"once that is mended, quarkline report {compute.workflow} writes it"
        error = f"{fault}; all results are in {results.path}: {remedy}"
        if not compute.quiet:
            raise InputError(error)
        tell(f"error: {error}", err=True)
        return Carried(rounds, 2)
    of = part.mark(results) if part else ""
    compute.tell(f"report{of and f' ({of})'}: {page}" if page else f"store: {results.path}")
    return Carried(rounds, _exit_code(rounds))


@dataclass(frozen=True)
class Carried:
    """The end of a run: its rounds, and the command's exit code."""

    rounds: Rounds
    exit_code: int


@dataclass
class Round:
    """Computing one plan after the other, and telling a person how it goes."""

    project: Project
    workflow: Path
    wanted: Path | None
    """The store that was asked for instead of the file's."""
    results: Store
    cluster: Cluster
    end: float | None
    """By the monotonic clock, of all rounds together."""
    share: bool = False
    """True to be one of several drivers of the store."""
    check: float | None = None
    """Share of the chunks that are repeated in part, unless it is the usual one."""
    quiet: bool = False
    dashboard_port: int = 0
    remarks: list[str] = field(default_factory=list)
    """What was warned about, for who reads no text."""

    def __call__(self, plan: Plan) -> Outcome:
        from pipeline import Share, explain
        from pipeline import run as run_plan
        from pipeline.reading.dashboard.watcher import Dashboard
        from workflows.catalogue import dashboard_additions
        from workflows.checks import checks_of
        from workflows.commands.display import RunDisplay

        for remark in remarks(plan, self.project, self.workflow, self.wanted):
            self.tell(f"warning: {remark}")
            self.remarks.append(remark)
        self.tell(_headline(explain(plan)))
        left = None if self.end is None else max(1.0, self.end - monotonic())
        share = Share(waits=self.project.in_rounds) if self.share else None
        with RunDisplay(quiet=self.quiet) as display:
            outcome = run_plan(
                plan,
                self.results,
                cluster=self.cluster,
                time_limit=left,
                checks=checks_of(self.check),
                listener=display,
                share=share,
                watcher=Dashboard(self.dashboard_port, dashboard_additions),
            )
        self.tell(outcome.table())
        return outcome

    def tell(self, text: str) -> None:
        if not self.quiet:
            tell(text)


def _results(rounds: Rounds, results: Store, compute: Round) -> Part | None:
    """Results to report of a run that ended with its work or failures: all, or those of some configurations.

    Averages of what did not fail are computed, on this machine where the cluster's workers wait in a queue.
    """
    from pipeline import plan
    from pipeline.running.clusters.local import Local
    from pipeline.running.outcome import COMPLETE, FAILED
    from workflows.partial import complete_part

    project, backend, outcome = rounds.project, rounds.backend, rounds.outcomes[-1]
    if outcome.stopped or outcome.exit_status not in (COMPLETE, FAILED):
        return None
    if outcome.exit_status == COMPLETE:
        return complete_part(project, rounds.plan.again(()), results)
    part = complete_part(project, plan(project.workflow, results, backend=backend), results)
    if part and part.project.mark:
        compute.tell(f"results of {part.project.mark}:")
        here = Local(workers=1, backend=backend) if compute.cluster.queued else compute.cluster
        replace(compute, cluster=here)(part.plan)
    return part


def _publish(part: Part | None, results: Store) -> tuple[Path | None, str]:
    """Write the report of what there is; its page, or why it could not be written."""
    from pipeline import InputError
    from pipeline.store.errors import DamagedChunkError
    from workflows.commands.report import publish

    if part is None:
        return None, ""
    try:
        return publish(part, results), ""
    except DamagedChunkError:
        raise
    except InputError as error:
        return None, str(error)


def _cluster(site: ClusterSection, workers: int | None, dashboard_port: int | None) -> Cluster:
    from pipeline import InputError
    from pipeline.running.clusters.choose import cluster_of
    from pipeline.running.clusters.section import Workers

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


def _headline(explained: str) -> str:
    """The first and, where something is missing, the last line of a plan."""
    first, *_, last = explained.splitlines()
    return f"{first}\n{last}" if last.startswith("projected") else first


def _print_json(rounds: Rounds, warnings: list[str], page: Path | None, fault: str, mark: str) -> None:
    """The outcome of the last round, and what its results lead to."""
    from workflows.outputs.campaigns import RunOutput

    outcome, step = rounds.outcomes[-1], rounds.last_step
    result: dict[str, Any] = {
        "run": outcome.run,
        "workflow": outcome.workflow,
        "states": {node: dict(counts) for node, counts in outcome.states.items()},
        "failures": [str(failure) for failure in outcome.failures],
        "stopped": outcome.stopped,
        "checks": asdict(outcome.checks),
        "seconds": sum(each.seconds for each in rounds.outcomes),
        "report": page,
        "warnings": warnings,
        "partial": mark or None,
        "error": fault or None,
    }
    if step:
        result |= {"target_met": step.met, "target": step.text}
    RunOutput(**result).print()


def _exit_code(rounds: Rounds) -> int:
    return INTERRUPTED if rounds.outcomes[-1].stopped in SIGNALS else rounds.exit_status

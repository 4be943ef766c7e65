"""`quarkline run`: compute what is missing, then write the report."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workflows.commands.options import (
    ClusterOption,
    JsonOption,
    StoreOption,
    TimeLimitOption,
    WorkflowFile,
    say,
)
from workflows.commands.target import remarks, store_of

if TYPE_CHECKING:
    from pipeline import Outcome, Plan
    from pipeline.running.clusters import Cluster
    from workflows.rounds import Driven

INTERRUPTED = 130
SIGNALS = ("SIGINT", "SIGTERM")


def run(
    workflow: WorkflowFile,
    cluster: ClusterOption = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Worker processes, GPUs or jobs; no more start than the plan has work for at a time.",
            show_default="as many as are of use",
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compute what a workflow file asks for and the store does not hold yet, then write the report.

    Interrupt it, kill it, or edit the file: the same command goes on with exactly what is missing. A failed
    piece does not stop the others.

    A file with a `target` runs in rounds, each with more noise vectors, until the error is small enough.

    Exit code: 0 complete, 1 something failed or a target was missed, 2 a mistake in the command or the file,
    3 stopped by the time limit, 130 interrupted.

    Example: quarkline run workflows/g2_disconnected.yaml

    Example: quarkline run my.yaml --cluster cuda --time-limit 11h30m
    """
    from pipeline import InputError, explain
    from pipeline import run as run_plan
    from workflows.catalogue import load_project
    from workflows.commands.display import RunDisplay
    from workflows.commands.report import publish
    from workflows.rounds import drive

    def tell(text: str) -> None:
        if not json:
            say(text)

    def compute(plan: Plan) -> Outcome:
        for remark in remarks(plan, project, workflow, store):
            tell(f"warning: {remark}")
            said.append(remark)
        tell(_headline(explain(plan)))
        remaining = None if time_limit is None else max(1.0, time_limit - (monotonic() - began))
        with RunDisplay(quiet=json) as display:
            outcome = run_plan(plan, results, cluster=chosen, time_limit=remaining, listener=display)
        tell(outcome.table())
        return outcome

    began, project, said = monotonic(), load_project(workflow), list[str]()
    chosen, results = _cluster(cluster, workers), store_of(project, workflow, store)
    for warning in project.warnings:
        tell(f"warning: {warning}")
    driven = drive(project, results, chosen.backend, compute, tell)
    page, fault = None, ""
    if not driven.outcomes[-1].exit_status:
        try:
            page = publish(driven.last.project, results)
        except InputError as error:
            fault = str(error)
    if json:
        _print_json(driven, [*driven.last.project.warnings, *said], page, fault)
    if fault:
        remedy = f"once that is mended, quarkline report {workflow} writes it"
        raise InputError(f"{fault}; all results are in {results.path}: {remedy}")
    tell(f"report: {page}" if page else f"store: {results.path}")
    raise typer.Exit(_exit_code(driven))


def _cluster(name: str, workers: int | None) -> Cluster:
    from pipeline import InputError
    from pipeline.running.clusters.choose import choose

    try:
        return choose(name, **({} if workers is None else {"workers": workers}))
    except TypeError:
        raise InputError(
            f"--workers {workers}: the workers of {name} are started elsewhere; leave it out"
        ) from None


def _headline(explained: str) -> str:
    """The first and, where something is missing, the last line of a plan."""
    first, *_, last = explained.splitlines()
    return f"{first}\n{last}" if last.startswith("projected") else first


def _print_json(driven: Driven, warnings: list[str], page: Path | None, fault: str) -> None:
    """The outcome of the last round, and what its results lead to."""
    from json import dumps

    outcome, step = driven.outcomes[-1], driven.last.step
    result: dict[str, Any] = {
        "run": outcome.run,
        "workflow": outcome.workflow,
        "states": {node: dict(counts) for node, counts in outcome.states.items()},
        "failures": [str(failure) for failure in outcome.failures],
        "stopped": outcome.stopped,
        "seconds": sum(each.seconds for each in driven.outcomes),
        "report": str(page) if page else None,
        "warnings": warnings,
    }
    if fault:
        result["error"] = fault
    if step:
        result |= {"target_met": step.met, "target": step.text}
    typer.echo(dumps(result, indent=2))


def _exit_code(driven: Driven) -> int:
    return INTERRUPTED if driven.outcomes[-1].stopped in SIGNALS else driven.exit_status

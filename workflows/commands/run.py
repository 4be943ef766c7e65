"""`quarkline run`: compute what is missing, then write the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workflows.commands.options import ClusterOption, JsonOption, StoreOption, TimeLimitOption, WorkflowFile

if TYPE_CHECKING:
    from pipeline import Outcome
    from pipeline.clusters import Cluster

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

    Exit code: 0 complete, 1 something failed, 2 a mistake in the command or the file, 3 stopped by the time
    limit, 130 interrupted.

    Example: quarkline run workflows/g2_disconnected.yaml

    Example: quarkline run my.yaml --cluster cuda --time-limit 11h30m
    """
    from pipeline import Store
    from pipeline import plan as make_plan
    from pipeline import run as compute
    from workflows.catalogue import load_project
    from workflows.commands.display import RunDisplay
    from workflows.commands.report import publish

    project = load_project(workflow)
    chosen = _cluster(cluster, workers)
    kept = Store(store or project.store)
    planned = make_plan(project.workflow, kept, backend=chosen.backend)
    if not json:
        typer.echo(_headline(planned.explain()))
    with RunDisplay(quiet=json) as display:
        outcome = compute(planned, kept, cluster=chosen, time_limit=time_limit, listener=display)
    page = publish(project, kept) if outcome.exit_status == 0 else None
    if json:
        _print_json(outcome, page)
    else:
        typer.echo(outcome.table())
        typer.echo(f"report: {page}" if page else f"store: {kept.path}")
    raise typer.Exit(_exit_code(outcome))


def _cluster(name: str, workers: int | None) -> Cluster:
    from pipeline import UserError
    from pipeline.clusters.choose import choose

    try:
        return choose(name, **({} if workers is None else {"workers": workers}))
    except TypeError:
        raise UserError(
            f"--workers {workers}: the workers of {name} are started elsewhere; leave it out"
        ) from None


def _headline(explained: str) -> str:
    """The first and, where something is missing, the last line of a plan."""
    first, *_, last = explained.splitlines()
    return f"{first}\n{last}" if last.startswith("projected") else first


def _print_json(outcome: Outcome, page: Path | None) -> None:
    from json import dumps

    result: dict[str, Any] = {
        "run": outcome.run,
        "workflow": outcome.workflow,
        "states": {node: dict(counts) for node, counts in outcome.states.items()},
        "failures": [str(failure) for failure in outcome.failures],
        "stopped": outcome.stopped,
        "seconds": outcome.seconds,
        "report": str(page) if page else None,
    }
    typer.echo(dumps(result, indent=2))


def _exit_code(outcome: Outcome) -> int:
    return INTERRUPTED if outcome.stopped in SIGNALS else outcome.exit_status

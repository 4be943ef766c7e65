"""`quarkline report`: write the report of what is in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workflows.commands.options import ClusterOption, StoreOption, WorkflowFile

if TYPE_CHECKING:
    from pipeline import Store
    from workflows.catalogue import Project


def report(workflow: WorkflowFile, cluster: ClusterOption = "local", store: StoreOption = None) -> None:
    """Write the HTML report and its text tables again, from a finished run; computes nothing.

    The exit code is 1 if the run is not complete.

    Example: quarkline report workflows/g2_disconnected.yaml
    """
    from pipeline import Store
    from workflows.catalogue import load_project

    project = load_project(workflow)
    kept = Store(store or project.store)
    require_complete(project, kept, cluster, workflow)
    typer.echo(f"report: {publish(project, kept)}")


def require_complete(project: Project, store: Store, cluster: str, file: Path) -> None:
    """Ends the command with exit code 1 if chunks of the workflow are missing."""
    from pipeline import plan
    from pipeline.clusters.choose import choose

    missing = plan(project.workflow, store, backend=choose(cluster).backend).missing
    if missing:
        typer.echo(f"error: {len(missing)} chunks are missing: quarkline run {file}", err=True)
        raise typer.Exit(1)


def publish(project: Project, store: Store) -> Path:
    """Writes the workflow's own sections and the engine's account; returns the page."""
    from pipeline.account import account, summary
    from pipeline.report import write_report

    name = project.workflow.name
    sections = [*project.sections(store), *account(store, name)]
    return write_report(
        project.report, project.title, summary(store, name), sections, texts=project.texts(store)
    ).absolute()

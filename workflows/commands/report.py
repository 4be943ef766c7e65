"""`quarkline report`: write the report of what is in the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workflows.commands.options import StoreOption, WorkflowFile, say
from workflows.commands.target import store_of

if TYPE_CHECKING:
    from pipeline import Store
    from pipeline.reading.report import Section
    from workflows.rounds import Round
    from workflows.shared.definition import Project


def report(workflow: WorkflowFile, store: StoreOption = None) -> None:
    """Write the HTML report and its text tables again, from a finished run; computes nothing.

    The exit code is 1 if the run is not complete.

    Example: quarkline report workflows/g2_disconnected.yaml
    """
    from workflows.catalogue import load_project

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    say(f"report: {publish(complete(project, results, workflow), results)}")


def complete(project: Project, store: Store, file: Path) -> Project:
    """The project, of its last round where it has several.

    Ends the command with exit code 1 if chunks are missing on every backend.

    Otherwise the store's results get the names that this file, as it is now, gives them.
    """
    from pipeline import run
    from pipeline.declare.text import counted
    from pipeline.reading.gc import BACKENDS
    from pipeline.running.clusters.local import Local
    from workflows.rounds import visited

    paths = [list(visited(project, store, backend)) for backend in BACKENDS]
    best = min(paths, key=_left)[-1]
    if best.plan.missing:
        missing = counted(len(best.plan.missing), "chunk")
        say(f"error: {missing} missing in {store.path}: quarkline run {file}", err=True)
        raise typer.Exit(1)
    run(best.plan, store, cluster=Local(backend=best.plan.backend))
    return best.project


def _left(rounds: Sequence[Round]) -> tuple[bool, int, int]:
    """Order of backends: complete ones, then those in later rounds, then those with less to do."""
    missing = len(rounds[-1].plan.missing)
    return missing > 0, -len(rounds), missing


def publish(project: Project, store: Store) -> Path:
    """Writes the workflow's own sections and the engine's account; returns the page."""
    from pipeline.reading.account import account, summary
    from pipeline.reading.report import write_report

    name, texts = project.workflow.name, project.texts(store)
    sections = [*_warnings(project), *project.sections(store), *account(store, name)]
    with writing_into(project.report) as folder:
        return write_report(folder, project.title, summary(store, name), sections, texts)


def _warnings(project: Project) -> list[Section]:
    from pipeline.reading.report import Section, Table

    rows = [[warning] for warning in project.warnings]
    text = "Input that may be meant, and rarely is; it stands on every plan and run, too."
    return [Section("Warnings", text, [Table(["warning"], rows)])] if rows else []


@contextmanager
def writing_into(folder: Path) -> Iterator[Path]:
    """Make the folder; what the file system refuses is a mistake of the user's."""
    from pipeline import InputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
    except OSError as error:
        raise InputError(f"cannot write into {folder.absolute()}: {error.strerror or error}") from error

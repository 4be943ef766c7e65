"""`quarkline status`: the state of a store and of its last run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn

from pipeline import Store
from pipeline import status as find_status
from pipeline.reading.handover import Handover, handover
from pipeline.reading.handover_page import write_handover
from pipeline.reading.status import Status
from workflows.campaign.queue import campaign_lines
from workflows.catalogue import load_project, status_lines
from workflows.commands.options import JsonOption, SetOption, Target
from workflows.display import progress_bar
from workflows.documents import Document
from workflows.stores import open_store

CAMPAIGNS = "State of the last campaign of each workflow: its jobs, its cost, why it submits no further ones."

DOCUMENT = Document(
    "status",
    Status,
    {"targets": list[str], "campaigns": Annotated[list[str], CAMPAIGNS]},
    about="The state of a store.",
)
HANDOVER = Document(
    "handover",
    {"page": Path},
    Handover,
    about="Facts that `quarkline status --handover` writes on its page.",
)


def status(
    target: Target,
    changes: SetOption = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--handover",
            metavar="FILE",
            help="Write a page for the person who continues: what ran, what is missing and why, what it "
            "cost, and the commands and parameter files to continue with.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show which runs use a store, what it holds of each workflow, and how the last run went or is going.

    For a workflow with a target, it compares predicted and achieved errors of each round. You may use it at
    any time, also during a run.

    Example: quarkline status g2-store

    Example: quarkline status g2-store --handover handover.html
    """
    store = open_store(target, changes)
    if page is not None:
        _hand_over(store, page, json)
        return
    state, targets = find_status(store), status_lines(store)
    lacking = {node.workflow for node in state.nodes if node.stored < node.chunks}
    campaigns = campaign_lines(store, {node.workflow for node in state.nodes} - lacking)
    text = "\n".join([str(state), *campaigns, *targets, *_not_run(state, target, changes)])
    DOCUMENT.show(state, {"targets": targets, "campaigns": campaigns}, text=text, as_json=json)


def _not_run(state: Status, file: Path, changes: Sequence[str] | None) -> list[str]:
    """That no run was of a file with these changes, in a line."""
    project = load_project(file, changes) if changes else None
    if not (project and project.source) or project.source.label in chain(*state.files.values()):
        return []
    plan = f"quarkline plan {shlex.quote(str(file))}{project.options}"
    return [f"none of this was run as {project.source.label}: `{plan}` shows which of its chunks are stored"]


def _hand_over(store: Store, page: Path, json: bool) -> None:
    """Write the page, and print where it is or what it holds."""
    with progress_bar("reading", TimeRemainingColumn(), quiet=json) as listener:
        facts = handover(store, status_lines(store), listener)
    written = write_handover(facts, page)
    HANDOVER.show({"page": written}, facts, text=f"hand-over: {written}", as_json=json)

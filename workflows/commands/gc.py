"""`quarkline gc`: drop what no workflow reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import InputError, Store, collect_garbage
from pipeline.planning.workflow import file_and_changes
from pipeline.reading.gc import BACKENDS, Garbage
from workflows.catalogue import load_project
from workflows.commands.options import JsonOption, SetOption, StoreOption
from workflows.documents import Document
from workflows.rounds import Rounds
from workflows.terminal import say

DOCUMENT = Document(
    "gc",
    Garbage,
    about="Chunks (stage and key) that no workflow reaches, and the bytes that they take.",
)


def gc(
    workflows: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKFLOW...",
            help="Files whose results are kept; 'my.yaml --set KEY=VALUE', in quotes, for changed values.",
        ),
    ],
    changes: SetOption = None,
    store: StoreOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before chunks are removed.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove from a store what none of these workflow files, as they are now, uses.

    Name every file that shares the store. Before it removes chunks, it lists the files for which they were
    computed, including earlier versions, with the number of chunks that each loses, and asks you.

    Example: quarkline gc --dry-run workflows/g2_disconnected.yaml
    """
    files = map(file_and_changes, workflows)
    projects = [load_project(Path(path), [*own, *(changes or ())]) for path, own in files]
    folders = {store or project.store for project in projects}
    if len(folders) > 1:
        raise InputError(f"these workflows use {len(folders)} stores: say which one, --store FOLDER")
    results = Store(folders.pop())
    reached = [
        each.workflow
        for project in projects
        for backend in BACKENDS
        for each in Rounds(project, results, backend).projects
    ]

    def ask(garbage: Garbage) -> None:
        if json:
            names = ", ".join(garbage.others or garbage.losses)
            raise InputError(
                f"{results.path}: chunks of {names} would be dropped: name all files whose results you keep, "
                "or give --yes; --dry-run shows what would be removed"
            )
        say(str(garbage))
        typer.confirm("remove them?", abort=True)

    agree = {} if yes else {"agree": ask}
    garbage = collect_garbage(results, reached, dry_run=dry_run, **agree)
    DOCUMENT.show(garbage, text=str(garbage), as_json=json)

"""`quarkline report`: write the report of what is in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workflows.commands.options import JsonOption, SetOption, StoreOption, WorkflowFile
from workflows.documents import Document
from workflows.publishing import publish, results_of, sound_chunks
from workflows.stores import project_and_store
from workflows.terminal import say

DOCUMENT = Document(
    "report",
    {
        "report": Path,
        "partial": Annotated[str, "Configurations that it is of; empty for all."],
        "missing": Annotated[int, "Chunks that are not computed yet."],
    },
    about="The report that was written.",
)


def report(
    workflow: WorkflowFile,
    changes: SetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write the HTML report and its text tables again, from what is stored.

    If a run is not complete, the report contains only its complete configurations, and says so. Only their
    averages are computed. The exit code is then 1.

    Example: quarkline report workflows/g2_disconnected.yaml
    """
    project, results = project_and_store(workflow, store, changes)
    with sound_chunks(results, file := f"{workflow}{project.options}"):
        part = results_of(project, results, file)
        page = publish(part, results, lambda text: say(f"warning: {text}", err=True))
    missing = len(part.whole.missing)
    facts = {"report": page, "partial": part.mark(results), "missing": missing}
    DOCUMENT.show(facts, text=f"report: {page}", as_json=json)
    raise typer.Exit(int(missing > 0))

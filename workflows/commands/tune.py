"""`quarkline tune`: launch shapes of GPU kernels by measurement."""

from __future__ import annotations

from rich.progress import TimeElapsedColumn

from workflows.catalogue import load_project
from workflows.commands.options import JsonOption, WorkflowFile
from workflows.display import NOTE, progress_bar
from workflows.documents import Document
from workflows.tuning import Tuning, tuning_text
from workflows.tuning import tune as measure

DOCUMENT = Document("tune", Tuning, about="Measured launch shapes, and the table that they were written to.")


def tune(workflow: WorkflowFile, json: JsonOption = False) -> None:
    """Measure on this machine's GPU which launch shapes make the kernels of a workflow fastest.

    Later runs on this kind of GPU use them: they are kept for the workflow's lattice, block widths and
    precisions in $QUARKLINE_CACHE, else in quarkline of $XDG_CACHE_HOME or ~/.cache. Without it kernels take
    shapes that suit an H200. Results agree to rounding and are the same chunks; each records the shapes that
    it took. The first time compiles every candidate, a minute or more; after that it takes seconds.

    Example: quarkline tune workflows/g2_disconnected.yaml
    """
    project = load_project(workflow)
    with progress_bar("tuning", TimeElapsedColumn(), NOTE, quiet=json) as listener:
        tuning = measure(project, listener)
    DOCUMENT.show(tuning, text=tuning_text(tuning), as_json=json)

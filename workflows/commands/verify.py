"""`quarkline verify`: reread a store."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn

from pipeline import verify as reread
from pipeline.reading.verification import Verification
from workflows.commands.options import JsonOption, SetOption, Target
from workflows.display import progress_bar
from workflows.documents import Document
from workflows.stores import open_store

DOCUMENT = Document("verify", Verification, about="Findings of rereading a store.")


def verify(
    target: Target,
    changes: SetOption = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove damaged chunks; a run computes them again.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Read every array in a store and compare it with the digest recorded when it was computed.

    The exit code is 1 if anything is damaged or cannot be read.

    Example: quarkline verify g2-store
    """
    with progress_bar("reading", TimeRemainingColumn(), quiet=json) as listener:
        verification = reread(open_store(target, changes), remove=remove, listener=listener)
    DOCUMENT.show(verification, text=str(verification), as_json=json)
    if verification.damaged or verification.unreadable:
        raise typer.Exit(1)

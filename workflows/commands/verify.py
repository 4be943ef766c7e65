"""`quarkline verify`: reread a store."""

from __future__ import annotations

from typing import Annotated

import typer

from workflows.commands.options import JsonOption, say
from workflows.commands.target import Target


def verify(
    target: Target,
    remove: Annotated[
        bool, typer.Option("--remove", help="Drop damaged chunks; a run computes them again.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Read every array in a store and compare it with the digest recorded when it was computed.

    The exit code is 1 if anything is damaged or cannot be read.

    Example: quarkline verify g2-store
    """
    from rich.console import Console
    from rich.progress import Progress

    from pipeline import verify as reread
    from workflows.commands.target import open_store

    store = open_store(target)
    with Progress(console=Console(stderr=True), transient=True, disable=json) as progress:
        task = progress.add_task("reading", total=None)
        verification = reread(
            store,
            remove=remove,
            listener=lambda done, total: progress.update(task, completed=done, total=total),
        )
    if json:
        from workflows.outputs.files import VerifyOutput

        VerifyOutput(**vars(verification)).print()
    else:
        say(str(verification))
    if verification.damaged or verification.unreadable:
        raise typer.Exit(1)

"""`quarkline merge`: bring several stores into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import Store
from pipeline.transfer.receipt import Receipt
from pipeline.transfer.transfer import receive
from workflows.commands.moving import OF_BYTES, ResultsOption, StageOption, selection, show
from workflows.commands.options import JsonOption
from workflows.display import progress_bar
from workflows.documents import Document

DOCUMENT = Document("merge", Receipt, about="Several stores brought into one.")


def merge(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores to bring together.")],
    into: Annotated[
        Path,
        typer.Option("--into", metavar="STORE", help="The store that gets everything, new or not."),
    ],
    keep_first: Annotated[
        bool,
        typer.Option(
            "--keep-first",
            help="If stores hold different numbers for one chunk, keep those of --into, else of the store "
            "named first, instead of refusing.",
        ),
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy files that could be hard links to those of the stores.")
    ] = False,
    stage: StageOption = None,
    results: ResultsOption = False,
    json: JsonOption = False,
) -> None:
    """Copy the chunks of several stores into one, with their plans, histories and ledgers.

    Every chunk is compared with its digests. The source stores are only read, and runs may use them
    meanwhile; nothing in --into is replaced. After an interruption, the same command continues. On one file
    system chunks become hard links, which need no space.

    A chunk is named by what determines it, so equal names are the same chunk, which is kept once. If two
    stores hold different numbers under one name, nothing is merged, and the chunks are listed.

    The exit code is 1 if a chunk is damaged; it stays where it is, and the others are merged.

    Example: quarkline merge laptop-store cluster-store --into g2-store
    """
    sources = [Store.existing(path) for path in stores]
    wanted = selection(stage, results)
    with progress_bar("merging", *OF_BYTES, quiet=json) as listener:
        receipt = receive(sources, Store(into), wanted, listener, keep_first=keep_first, links=not copy)
    show(receipt, DOCUMENT, json=json)

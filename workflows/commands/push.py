"""`quarkline push`: send a store elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import Store
from pipeline.transfer.push import push as send
from pipeline.transfer.receipt import Receipt
from pipeline.transfer.transfer import receive
from workflows.commands.moving import (
    OF_BYTES,
    ResultsOption,
    SshOption,
    StageOption,
    reached,
    selection,
    show,
)
from workflows.commands.options import JsonOption
from workflows.display import progress_bar
from workflows.documents import Document

DOCUMENT = Document("push", Receipt, about="A store sent elsewhere.")


def push(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store here.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A store, new or not: user@host:/folder, s3://bucket/folder, or a folder."
        ),
    ],
    stage: StageOption = None,
    results: ResultsOption = False,
    ssh: SshOption = "ssh",
    json: JsonOption = False,
) -> None:
    """Copy the chunks that a remote store lacks from a local one, with plans and histories.

    It uses the system's ssh and rsync; the other machine needs no quarkline. Every chunk is compared with its
    digests before it is sent, and the bytes that arrived are compared with those that were sent. After an
    interruption, the same command continues. Nothing there is replaced.

    The exit code is 1 if a chunk is damaged; the others are sent.

    Example: quarkline push g2-store me@archive.example.org:/data/g2-store

    Example: quarkline push g2-store s3://lattice/g2-store --results
    """
    wanted, source = selection(stage, results), Store.existing(store)
    with reached(target, ssh) as elsewhere, progress_bar("sending", *OF_BYTES, quiet=json) as listener:
        if elsewhere is None:
            receipt = receive([source], Store(target), wanted, listener, links=False)
        else:
            receipt = send(source, elsewhere, wanted, listener)
    show(receipt, DOCUMENT, json=json)

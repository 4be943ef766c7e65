"""`quarkline pull`: bring a store from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import Store
from pipeline.transfer.receipt import Receipt
from pipeline.transfer.transfer import pull as bring
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

DOCUMENT = Document("pull", Receipt, about="A store brought from elsewhere.")


def pull(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A store: user@host:/folder, s3://bucket/folder, or a folder."),
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store here, new or not.")],
    stage: StageOption = None,
    results: ResultsOption = False,
    ssh: SshOption = "ssh",
    json: JsonOption = False,
) -> None:
    """Copy the chunks that a local store lacks from a remote one, with plans and histories.

    It uses the system's ssh and rsync, with their configuration and one login. Every chunk is compared with
    its digests before it becomes visible. After an interruption, the same command continues. Nothing here is
    replaced, and a run may write to the source meanwhile. Object storage needs the extra `s3`.

    The exit code is 1 if a chunk is damaged; the others are copied.

    Example: quarkline pull me@cluster.example.org:/scratch/g2-store g2-store

    Example: quarkline pull cluster:/scratch/g2-store g2-store --results

    Example: quarkline pull s3://lattice/g2-store g2-store
    """
    wanted, target = selection(stage, results), Store(store)
    with reached(source, ssh) as elsewhere, progress_bar("bringing", *OF_BYTES, quiet=json) as listener:
        if elsewhere is None:
            receipt = receive([Store.existing(source)], target, wanted, listener, links=False)
        else:
            receipt = bring(elsewhere, target, wanted, listener)
    show(receipt, DOCUMENT, json=json)

"""Options and output that the commands share which move stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TimeRemainingColumn

from pipeline.planning.manifest import Manifest
from pipeline.store.object_store import url_in
from pipeline.transfer.bucket import Bucket, RemoteStore
from pipeline.transfer.host import Host, remote_folder
from pipeline.transfer.offer import Selection
from pipeline.transfer.receipt import Receipt
from workflows.documents import Document
from workflows.names import workflow_names
from workflows.shared.blinded_averages import BLINDED_APART

OF_BYTES = (DownloadColumn(), TimeRemainingColumn())

StageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Only chunks of this stage or node; may be given several times.",
        show_default="all",
    ),
]
SshOption = Annotated[
    str,
    typer.Option(
        "--ssh",
        metavar="COMMAND",
        envvar="RSYNC_RSH",
        help="The command that connects, with its options: 'ssh -p 2222 -i KEY'.",
    ),
]
ResultsOption = Annotated[
    bool,
    typer.Option(
        "--results",
        help="Only what analysis needs: results, and all chunks of at most 1 MiB. Gauge fields, "
        "eigenvectors, propagators and setups stay behind.",
    ),
]


def selection(stage: Sequence[str] | None, results: bool) -> Selection:
    """The chunks that options ask for."""
    return Selection(tuple(stage or ()), results_of if results else None, BLINDED_APART)


def results_of(known: Iterable[Manifest]) -> tuple[str, ...]:
    """Names of the nodes that installed workflows call their results, of those that stores have."""
    from workflows.catalogue import definition_of  # with the kernels of all stages: a second

    installed = workflow_names()
    return tuple(
        name
        for manifest in known
        if manifest.workflow in installed
        for name in definition_of(manifest.workflow).results_in(manifest.nodes)
    )


@contextmanager
def reached(text: str, ssh: str) -> Iterator[RemoteStore | None]:
    """The place that a text names on another machine or on object storage; None for a folder here."""
    if url := url_in(text):
        yield Bucket(url)
    elif folder := remote_folder(text):
        with Host(*folder, ssh) as host:
            yield host
    else:
        yield None


def show(receipt: Receipt, document: Document, *, json: bool) -> None:
    """Print what a transfer did; ends with exit code 1 where it left something behind."""
    document.show(receipt, text=str(receipt), as_json=json)
    raise typer.Exit(int(not receipt.is_whole))

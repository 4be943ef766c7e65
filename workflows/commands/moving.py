"""Options and output that the commands share which move stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from workflows.commands.options import say

if TYPE_CHECKING:
    from pipeline.planning.manifest import Manifest
    from pipeline.transfer.bucket import RemoteStore
    from pipeline.transfer.offer import Selection
    from pipeline.transfer.receipt import Receipt

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
    from pipeline.transfer.offer import Selection

    return Selection(tuple(stage or ()), results_of if results else None)


def results_of(known: Iterable[Manifest]) -> tuple[str, ...]:
    """Names of the nodes that installed workflows call their results, of those that stores have."""
    from workflows.catalogue import definition_of
    from workflows.names import workflow_names

    installed = workflow_names()
    return tuple(
        name
        for manifest in known
        if manifest.workflow in installed
        for name in definition_of(manifest.workflow).results
        if name in manifest.nodes
    )


@contextmanager
def reached(text: str, ssh: str) -> Iterator[RemoteStore | None]:
    """The place that a text names on another machine or on object storage; None for a folder here."""
    from pipeline.store.object_store import url_in
    from pipeline.transfer.bucket import Bucket
    from pipeline.transfer.host import Host, remote_folder

    if url := url_in(text):
        yield Bucket(url)
    elif folder := remote_folder(text):
        with Host(folder, ssh) as host:
            yield host
    else:
        yield None


@contextmanager
def bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over bytes; yields what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show(receipt: Receipt, command: str, *, json: bool) -> None:
    """Print what a transfer did; ends with exit code 1 where it left something behind."""
    if json:
        from workflows.outputs.catalogue import OUTPUTS

        OUTPUTS[command](**vars(receipt)).print()
    else:
        say(str(receipt))
    raise typer.Exit(int(not receipt.is_whole))

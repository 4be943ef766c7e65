"""`quarkline status`: the state of a store and of its last run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workflows.commands.options import JsonOption, say
from workflows.commands.target import Target

if TYPE_CHECKING:
    from pipeline import Store


def status(
    target: Target,
    handover: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page for who takes the store over: what ran, what is missing and why, what it "
            "cost, the commands and parameter files to go on with.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show who drives a store, what it holds of each workflow, and how its last run went or goes.

    Of a workflow with a target, predicted against achieved errors of its rounds.

    May be asked at any time, also while a run is on.

    Example: quarkline status g2-store

    Example: quarkline status g2-store --handover handover.html
    """
    from pipeline import status as find_status
    from workflows.catalogue import status_lines
    from workflows.commands.target import open_store

    store = open_store(target)
    if handover is not None:
        _hand_over(store, status_lines(store), handover, json)
        return
    from workflows.campaign.queue import campaign_lines

    state, targets = find_status(store), status_lines(store)
    lacking = {node.workflow for node in state.nodes if node.stored < node.chunks}
    campaigns = campaign_lines(store, {node.workflow for node in state.nodes} - lacking)
    if json:
        from workflows.outputs.campaigns import StatusOutput

        StatusOutput(**vars(state), targets=targets, campaigns=campaigns).print()
    else:
        say("\n".join([str(state), *campaigns, *targets]))


def _hand_over(store: Store, targets: list[str], page: Path, json: bool) -> None:
    """Write the page, and print where it is or what it holds."""
    from rich.console import Console
    from rich.progress import Progress

    from pipeline.reading.handover import handover
    from pipeline.reading.handover_page import write_handover

    with Progress(console=Console(stderr=True), transient=True, disable=json) as progress:
        task = progress.add_task("reading", total=None)
        facts = handover(
            store, targets, lambda done, total: progress.update(task, completed=done, total=total)
        )
    written = write_handover(facts, page)
    if json:
        from workflows.outputs.moving import HandoverOutput

        HandoverOutput(page=written, **vars(facts)).print()
    else:
        say(f"hand-over: {written}")

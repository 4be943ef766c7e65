"""`quarkline status`: the state of a store and of its last run."""

from __future__ import annotations

from workflows.commands.options import JsonOption, say
from workflows.commands.target import Target


def status(target: Target, json: JsonOption = False) -> None:
    """Show who drives a store, what it holds of each workflow, and how its last run went or goes.

    Of a workflow with a target, predicted against achieved errors of its rounds.

    May be asked at any time, also while a run is on.

    Example: quarkline status g2-store
    """
    from pipeline import status as find_status
    from workflows.catalogue import status_lines
    from workflows.commands.target import open_store

    store = open_store(target)
    state, targets = find_status(store), status_lines(store)
    if json:
        from workflows.outputs.campaigns import StatusOutput

        StatusOutput(**vars(state), targets=targets).print()
    else:
        say("\n".join([str(state), *targets]))

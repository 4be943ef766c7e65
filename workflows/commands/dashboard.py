"""`quarkline dashboard`: pages of a store in a browser."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated

import typer

from workflows.commands.options import JsonOption, say
from workflows.commands.options import port as port_of
from workflows.commands.target import Target

if TYPE_CHECKING:
    from pipeline.reading.dashboard.door import Door


def dashboard(
    target: Target,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            parser=port_of,
            help="Port on 127.0.0.1, for an ssh tunnel; refused where it is taken. 0: any free one.",
        ),
    ] = "0",  # type: ignore[assignment]
    json: JsonOption = False,
) -> None:
    """Show a campaign in a browser: what is done, how solves converge, what it costs, what failed.

    Reads the store alone, and follows it while drivers run, here or elsewhere. Listens on 127.0.0.1; the link
    holds a secret, without which nothing is answered. Ends on Ctrl-C.

    Example: quarkline dashboard g2-store

    Example: quarkline dashboard my.yaml --port 8799
    """
    from pipeline.reading.dashboard.watcher import Dashboard
    from workflows.catalogue import dashboard_additions
    from workflows.commands.target import open_store

    store = open_store(target)

    def tell(served: Door) -> None:
        tunnel = f"ssh -L {served.port}:127.0.0.1:{served.port} {socket.gethostname()}"
        if json:
            from workflows.outputs.campaigns import DashboardOutput

            DashboardOutput(store=store.path, link=served.link, port=served.port, tunnel=tunnel).print()
        else:
            say(f"dashboard: {served.link}\nfrom elsewhere: {tunnel}, then open this link there")
            say("Ctrl-C ends it")

    Dashboard(port, dashboard_additions).serve(store, tell)

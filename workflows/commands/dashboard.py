"""`quarkline dashboard`: pages of a store in a browser."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.watcher import Dashboard
from workflows.catalogue import dashboard_additions
from workflows.commands.options import JsonOption, SetOption, Target
from workflows.commands.options import port as port_of
from workflows.documents import Document
from workflows.stores import open_store

DOCUMENT = Document(
    "dashboard",
    {
        "store": Path,
        "link": str,
        "port": Annotated[int, "On 127.0.0.1."],
        "tunnel": Annotated[str, "A command line for another machine."],
    },
    about="The pages of a store, served until the command is interrupted; the link holds a secret.",
)


def dashboard(
    target: Target,
    changes: SetOption = None,
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

    It only reads the store, and follows runs on this machine and others. It listens on 127.0.0.1 and shows
    nothing without the secret in the link. Ctrl-C ends it.

    Example: quarkline dashboard g2-store

    Example: quarkline dashboard my.yaml --port 8799
    """
    store = open_store(target, changes)

    def tell(served: Door) -> None:
        tunnel = f"ssh -L {served.port}:127.0.0.1:{served.port} {socket.gethostname()}"
        text = (
            f"dashboard: {served.link}\nfrom elsewhere: {tunnel}, then open this link there\nCtrl-C ends it"
        )
        facts = {"store": store.path, "link": served.link, "port": served.port, "tunnel": tunnel}
        DOCUMENT.show(facts, text=text, as_json=json)

    Dashboard(port, dashboard_additions).serve(store, tell)

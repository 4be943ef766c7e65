"""The pages as a web application, and a server of them for a store that is driven elsewhere, or by nobody."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import closing

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.server.tornado import BokehTornado
from tornado.ioloop import IOLoop

from pipeline.reading.dashboard.chunk_page import patterns
from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.facts.campaign import campaign_of
from pipeline.reading.dashboard.pages import Find, routes
from pipeline.running.stopping import stop_signals
from pipeline.store.store import Store

KEEP_ALIVE = 37_000
"""Milliseconds between signs of life of a connection."""


def application(token: str, find: Find) -> BokehTornado:
    """All pages of the campaign that `find` gives, below a secret, in this thread's event loop.

    Websockets may come from any origin: a tunnel gives other ports, and the path holds the secret.
    """
    pages = BokehTornado(
        {path: Application(FunctionHandler(fill)) for path, fill in routes(find).items()},
        prefix=f"/{token}/",
        extra_patterns=patterns(find),
        extra_websocket_origins=["*"],
        use_index=False,
        keep_alive_milliseconds=KEEP_ALIVE,
    )
    pages.initialize(IOLoop.current())
    return pages


def serve_store(store: Store, port: int, say: Callable[[Door], None]) -> None:
    """Serve the pages of a store on 127.0.0.1 until a signal to stop comes.

    say: called once the port is open.

    Raises:
        InputError: there is no store, or the port is taken.
    """
    campaign = campaign_of(Store.existing(store).path)
    with closing(Door(port, lambda token: application(token, lambda: campaign))) as door:
        logging.getLogger("tornado.access").setLevel(logging.ERROR)  # browsers ask for icons, and are refused
        IOLoop(make_current=True)
        loop = IOLoop.current()
        server = door.serve()
        for number in stop_signals():
            signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
        say(door)
        loop.start()
        server.stop()

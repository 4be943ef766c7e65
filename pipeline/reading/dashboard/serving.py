"""The pages as a web application, and a server of them for a store that is driven elsewhere, or by nobody."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.server.tornado import BokehTornado
from tornado.ioloop import IOLoop

from pipeline.reading.dashboard.chunk_page import patterns
from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.facts.campaign import campaign_of
from pipeline.reading.dashboard.pages import fill, pages_with
from pipeline.reading.dashboard.panel import Addition
from pipeline.reading.dashboard.watcher import Dashboard
from pipeline.running.stopping import stop_signals
from pipeline.store.store import Store

KEEP_ALIVE = 37_000
"""Milliseconds between signs of life of a connection."""


def application(token: str, store: Store, additions: Iterable[Addition] = ()) -> BokehTornado:
    """All pages of a store, below a secret, in this thread's event loop.

    Websockets may come from any origin: a tunnel gives other ports, and the path holds the secret.
    """
    addition = Addition.of_all(additions)
    campaign, pages = campaign_of(store.path, addition.facts), pages_with(addition)
    served = BokehTornado(
        {
            f"/{page.address}": Application(FunctionHandler(partial(fill, page, pages, campaign)))
            for page in pages
        },
        prefix=f"/{token}/",
        extra_patterns=patterns(campaign),
        extra_websocket_origins=["*"],
        use_index=False,
        keep_alive_milliseconds=KEEP_ALIVE,
    )
    served.initialize(IOLoop.current())
    return served


def serve_store(store: Store, dashboard: Dashboard, say: Callable[[Door], None]) -> None:
    """Serve the pages of a store on 127.0.0.1 until a signal to stop comes.

    say: called once the port is open.

    Raises:
        InputError: there is no store, or the port is taken.
    """
    with closing(dashboard(Store.existing(store))) as door:
        logging.getLogger("tornado.access").setLevel(logging.ERROR)  # browsers ask for icons, and are refused
        IOLoop(make_current=True)
        loop = IOLoop.current()
        server = door.serve()
        for number in stop_signals():
            signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
        say(door)
        loop.start()
        server.stop()

"""The dashboard as what watches a run, which `pipeline.run` serves by default, or as a server by itself."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from pipeline.running import driver
from pipeline.running.outcome import Outcome
from pipeline.running.stopping import stop_signals
from pipeline.store.store import Store

if TYPE_CHECKING:
    from tornado.web import Application

    from pipeline.reading.dashboard.door import Door
    from pipeline.reading.dashboard.panel import Addition

Options = ParamSpec("Options")


@dataclass(frozen=True)
class Dashboard:
    """Pages of a store, on this machine alone.

    Args:
        port: where they are served on 127.0.0.1; any free one by default.
        additions: what the workflows of a store add to its pages.
    """

    port: int = 0
    additions: Callable[[Store], Iterable[Addition]] = lambda store: ()

    def __call__(self, store: Store) -> Door:
        """Take the port. Raises InputError where it is taken."""
        from pipeline.reading.dashboard.door import Door

        def pages(token: str) -> Application:
            from pipeline.reading.dashboard.pages import application  # Bokeh: a run goes on without it

            return application(token, store, self.additions(store))

        return Door(self.port, pages)

    def serve(self, store: Store, say: Callable[[Door], None]) -> None:
        """Serve the pages of a store that is driven elsewhere, or by nobody, until a signal to stop comes.

        say: called once the port is open.

        Raises:
            InputError: there is no store, or the port is taken.
        """
        from tornado.ioloop import IOLoop

        with closing(self(Store.existing(store))) as door:
            logging.getLogger("tornado.access").setLevel(logging.ERROR)  # browsers ask for icons
            IOLoop(make_current=True)
            loop = IOLoop.current()
            server = door.serve()
            for number in stop_signals():
                signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
            say(door)
            loop.start()
            server.stop()


def watched(run: Callable[Options, Outcome]) -> Callable[Options, Outcome]:
    """A run with the dashboard as its watcher, unless it is given one, or None."""

    @wraps(run)
    def with_dashboard(*plan_and_store: Options.args, **options: Options.kwargs) -> Outcome:
        options.setdefault("watcher", Dashboard())
        return run(*plan_and_store, **options)

    return with_dashboard


run = watched(driver.run)

"""The dashboard as what watches a run: `pipeline.run` serves it, unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from tornado.web import Application

from pipeline.reading.dashboard.door import Door
from pipeline.running import driver
from pipeline.running.outcome import Outcome
from pipeline.store.store import Store

if TYPE_CHECKING:
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

        def pages(token: str) -> Application:
            from pipeline.reading.dashboard.serving import application  # Bokeh: a run goes on without it

            return application(token, store, self.additions(store))

        return Door(self.port, pages)


def watched(run: Callable[Options, Outcome]) -> Callable[Options, Outcome]:
    """A run with the dashboard as its watcher, unless it is given one, or None."""

    @wraps(run)
    def with_dashboard(*plan_and_store: Options.args, **options: Options.kwargs) -> Outcome:
        options.setdefault("watcher", Dashboard())
        return run(*plan_and_store, **options)

    return with_dashboard


run = watched(driver.run)

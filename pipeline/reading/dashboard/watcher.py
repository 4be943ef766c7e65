"""The dashboard as what watches a run: `pipeline.run` serves it, unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

from tornado.web import Application

from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.facts.campaign import campaign_of
from pipeline.running import driver
from pipeline.running.outcome import Outcome
from pipeline.store.store import Store

Options = ParamSpec("Options")


@dataclass(frozen=True)
class Dashboard:
    """Pages of the store that a run computes into.

    Args:
        port: where they are served on 127.0.0.1; any free one by default.
    """

    port: int = 0

    def __call__(self, store: Store) -> Door:
        """Take the port. Raises InputError where it is taken."""

        def pages(token: str) -> Application:
            from pipeline.reading.dashboard.serving import application

            return application(token, lambda: campaign_of(store.path))

        return Door(self.port, pages)


def watched(run: Callable[Options, Outcome]) -> Callable[Options, Outcome]:
    """A run with the dashboard as its watcher, unless it is given one, or None."""

    @wraps(run)
    def with_dashboard(*plan_and_store: Options.args, **options: Options.kwargs) -> Outcome:
        options.setdefault("watcher", Dashboard())
        return run(*plan_and_store, **options)

    return with_dashboard


run = watched(driver.run)

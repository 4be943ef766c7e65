"""The scheduler's plugin that follows a run's events and serves a page of them on Dask's dashboard."""

from __future__ import annotations

from functools import partial
from typing import Any

from distributed import SchedulerPlugin

from pipeline.running.monitor_view import RunView

PLAN_TOPIC = "quarkline-plan"
"""The driver says here what is missing, before it begins."""

PATH = "/quarkline"
"""Of the page, below the dashboard's address."""


class Monitor(SchedulerPlugin):
    """Plugin of the scheduler that follows the events of runs and serves the page."""

    name = "quarkline-monitor"

    def __init__(self) -> None:
        self.view = RunView()

    async def start(self, scheduler: Any) -> None:
        """Add the page to the scheduler's web server, if it has a dashboard."""
        if not hasattr(scheduler.http_application, "add_application"):
            return
        from distributed.dashboard.core import BokehApplication
        from tornado.ioloop import IOLoop

        from pipeline.running.monitor_page import page

        application = BokehApplication({PATH: partial(page, lambda: self.view)}, scheduler)
        scheduler.http_application.add_application(application)
        application.initialize(IOLoop.current())

    def log_event(self, topic: str, msg: Any) -> None:
        """Take an event of a run, or the beginning of another run, from Dask's event log."""
        if topic == PLAN_TOPIC:
            self.view = RunView(msg["run"], msg["missing"])
        elif topic.startswith("quarkline-"):
            self.view.add(msg)

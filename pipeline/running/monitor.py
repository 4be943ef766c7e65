"""The scheduler's plugin that follows a run's events and serves a page of them on Dask's dashboard."""

from __future__ import annotations

from functools import partial
from typing import Any

from distributed import SchedulerPlugin

from pipeline.running.dashboard import Dashboard
from pipeline.running.monitor_view import RunView

PLAN_TOPIC = "quarkline-plan"
"""The driver says here what is missing, before it begins."""


class Monitor(SchedulerPlugin):
    """Plugin of the scheduler that follows the events of runs and serves the dashboard with their page."""

    name = "quarkline-monitor"

    def __init__(self, dashboard: Dashboard | None = None) -> None:
        self._dashboard = dashboard
        self.view = RunView()

    async def start(self, scheduler: Any) -> None:
        """Open the dashboard, if there is one."""
        if self._dashboard:
            from pipeline.running.monitor_page import page

            self._dashboard.serve(scheduler, partial(page, lambda: self.view))

    def log_event(self, topic: str, msg: Any) -> None:
        """Take an event of a run, or the beginning of another run, from Dask's event log."""
        if topic == PLAN_TOPIC:
            self.view = RunView(msg["run"], msg["missing"])
        elif topic.startswith("quarkline-"):
            self.view.add(msg)

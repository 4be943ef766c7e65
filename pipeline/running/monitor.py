"""The scheduler's plugin that serves the dashboard's pages of the store into which a run computes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from distributed import SchedulerPlugin

from pipeline.running.dashboard import Dashboard
from pipeline.running.dashboard.facts.campaign import Campaign, campaign_of

PLAN_TOPIC = "quarkline-plan"
"""The driver says here into which store it computes, before it begins."""


class Monitor(SchedulerPlugin):
    """Plugin of the scheduler that shows the campaign of the run that began last."""

    name = "quarkline-monitor"

    def __init__(self, dashboard: Dashboard | None = None) -> None:
        self._dashboard = dashboard
        self._store: Path | None = None

    async def start(self, scheduler: Any) -> None:
        """Open the dashboard, if there is one; a run goes on without it."""
        if not self._dashboard or not self._dashboard.is_open:  # the run was stopped while this started
            return
        try:
            from pipeline.running.dashboard.serving import application

            self._dashboard.serve_beside(scheduler, application(self._dashboard.token, self.campaign))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            print(f"warning: there is no dashboard ({why}); the run goes on", file=sys.stderr)

    def campaign(self) -> Campaign | None:
        """The campaign that is shown; None before a run begins, InputError where its store is away."""
        return campaign_of(self._store) if self._store else None

    def log_event(self, topic: str, msg: Any) -> None:
        """Take the beginning of a run from Dask's event log."""
        if topic == PLAN_TOPIC:
            self._store = Path(os.fsdecode(msg["store"]))

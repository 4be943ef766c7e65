"""What a run looks like while it goes: gathered on the scheduler from its events, shown on its dashboard."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from distributed import SchedulerPlugin

PLAN_TOPIC = "quarkline-plan"
"""The driver says here what is missing, before it begins."""

PATH = "/quarkline"
"""Of the page, below the dashboard's address."""

SHOWN_CHUNKS = 12
SHOWN_STATES = ("done", "failed", "blocked", "running", "waiting")


class RunView:
    """Progress of nodes, histories of chunks and rates of one run."""

    def __init__(self, name: str = "", missing: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.missing = Counter(missing or {})
        self.ended: dict[str, Counter[str]] = {}
        self.running: dict[str, str] = {}
        self.histories: dict[str, list[tuple[float, float]]] = {}
        """Residuals that a chunk reported: (units done, residual)."""
        self.rates: dict[str, deque[tuple[float, float]]] = {}
        """What chunks reported of their speed (any value named like flops): (time, value)."""
        self.finished: deque[float] = deque(maxlen=10_000)

    def take(self, event: dict[str, Any]) -> None:
        """One event of a worker."""
        kind, key, node = event["event"], event["key"], event["node"]
        if kind == "started":
            self.running[key] = node
        elif kind == "progress":
            self._take_progress(event)
        elif kind in ("done", "present", "failed", "blocked"):
            self.running.pop(key, None)
            self.ended.setdefault(node, Counter())["done" if kind == "present" else kind] += 1
            self.finished.append(event["time"])

    def _take_progress(self, event: dict[str, Any]) -> None:
        label = " ".join([event["node"], *(str(values[0]) for values in event["coordinates"].values())])
        residual = event.get("residual")
        if isinstance(residual, (int, float)) and residual > 0:
            self.histories.setdefault(label, []).append((event["done"], residual))
            while len(self.histories) > SHOWN_CHUNKS:
                self.histories.pop(next(iter(self.histories)))
        for name, value in event.items():
            if "flops" in name.lower() and isinstance(value, (int, float)):
                self.rates.setdefault(name, deque(maxlen=1000)).append((event["time"], value))

    def counts(self) -> dict[str, list[int]]:
        """Per state of `SHOWN_STATES`, its number of chunks for each node."""
        nodes = list(self.missing)
        running = Counter(self.running.values())
        ended = [self.ended.get(node, Counter()) for node in nodes]
        columns = {state: [counts[state] for counts in ended] for state in ("done", "failed", "blocked")}
        columns["running"] = [min(running[n], self._left(n)) for n in nodes]
        columns["waiting"] = [self._left(n) - k for n, k in zip(nodes, columns["running"], strict=True)]
        return columns

    def _left(self, node: str) -> int:
        return max(0, self.missing[node] - sum(self.ended.get(node, Counter()).values()))

    def throughput(self, width: float = 10.0) -> list[tuple[float, float]]:
        """(time, chunks a second) in windows of `width` seconds."""
        windows = Counter(int(moment // width) for moment in self.finished)
        if not windows:
            return []
        return [(k * width, windows[k] / width) for k in range(min(windows), max(windows) + 1)]


class Monitor(SchedulerPlugin):
    """Follows the events of runs and serves the page."""

    name = "quarkline-monitor"

    def __init__(self) -> None:
        self.view = RunView()

    async def start(self, scheduler: Any) -> None:
        """Adds the page to the scheduler's web server, if it has a dashboard."""
        if not hasattr(scheduler.http_application, "add_application"):
            return
        from distributed.dashboard.core import BokehApplication
        from tornado.ioloop import IOLoop

        from pipeline.running.monitor_page import page

        application = BokehApplication({PATH: partial(page, lambda: self.view)}, scheduler)
        scheduler.http_application.add_application(application)
        application.initialize(IOLoop.current())

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == PLAN_TOPIC:
            self.view = RunView(msg["run"], msg["missing"])
        elif topic.startswith("quarkline-"):
            self.view.take(msg)

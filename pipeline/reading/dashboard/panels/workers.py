"""Workers of the runs that are followed."""

from __future__ import annotations

import time

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.runs import WorkerNews
from pipeline.reading.dashboard.look import Cell, html, table

HEADS = ("worker", "run", "chunks ended", "at work on", "last heard")
MOST = 200
"""Rows, the workers that were heard last."""

STEP = 10.0
"""Seconds in which silence is told."""


class Workers:
    """A table: what each worker does, and when it was heard last."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[list[Cell]]:
        """Rows, those heard last first."""
        logs, now = campaign.runs.followed.values(), time.time()
        heard = sorted(
            ((news.last, name, log, news) for log in logs for name, news in log.workers.items()),
            key=lambda entry: -entry[0],
        )
        return [
            [name, log.name, news.chunks, _work(news, log.name in campaign.driven), _silence(now - last)]
            for last, name, log, news in heard[:MOST]
        ]

    def show(self, rows: list[list[Cell]]) -> None:
        """Replace the table."""
        self.root.text = f"<h2>Workers</h2>{table(HEADS, rows) if rows else '<p>none was heard of</p>'}"


def _work(news: WorkerNews, driven: bool) -> str:
    return news.at_work or "nothing" if driven else "nothing: its run is over"


def _silence(seconds: float) -> str:
    return "now" if seconds < STEP else f"{duration_text(STEP * (seconds // STEP))} ago"

"""Failures of the last run: errors alike on one line, with a traceback of the first."""

from __future__ import annotations

from html import escape

from pipeline.declare.text import literal, literal_lines
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import html

Group = tuple[list[str], str]


class FailureList:
    """Groups of failures, each to be opened."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[Group]:
        """Lines and traceback of each group, of the runs at work or of the last one."""
        return [
            (list(group.lines()), log.details.get(group.error, ""))
            for log in campaign.last
            for group in log.state.failures.groups.values()
        ]

    def show(self, groups: list[Group]) -> None:
        """One fold for each group."""
        parts = [
            f"<details><summary>{'<br>'.join(escape(literal(line)) for line in lines)}</summary>"
            f"<pre>{escape(literal_lines(details or 'no traceback was written'))}</pre></details>"
            for lines, details in groups
        ]
        self.root.text = f"<h2>Failures of the last run</h2>{''.join(parts) or '<p>none</p>'}"

"""All runs of the store."""

from __future__ import annotations

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.runs import RunSummary
from pipeline.reading.dashboard.look import Cell, Linked, html, moment, table

HEADS = ("run", "workflow", "began", "took", "how it ended", "chunks")


class History:
    """A table, newest first; a run leads to its logs."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[tuple[RunSummary, bool]]:
        """All runs whose logs are kept, and whether their drivers are at work."""
        return [(run, run.run in campaign.driven) for run in campaign.runs.history()]

    def show(self, runs: list[tuple[RunSummary, bool]]) -> None:
        """Replace the table."""
        rows = [_row(*run) for run in runs]
        self.root.text = f"<h2>Runs</h2>{table(HEADS, rows) if rows else '<p>none</p>'}"


def _row(run: RunSummary, driven: bool) -> list[Cell]:
    took = None if run.ended is None or run.began is None else duration_text(run.ended - run.began)
    how = f"stopped by {run.stopped}" if run.stopped else "ended"
    if run.ended is None:
        how = "goes on" if driven else "was interrupted"
    counts = ", ".join(f"{count} {state}" for state, count in run.counts.items()) or "nothing yet"
    return [
        Linked(run.run, f"logs/{run.run}"),
        run.workflow,
        moment(run.began),
        took or "not known",
        how,
        counts,
    ]

"""State of the campaign, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.cost import costs
from pipeline.reading.dashboard.facts.pace import progress
from pipeline.reading.dashboard.look import NOT_MEASURED, html, number, tiles
from pipeline.worker.events import EventKind


class Headline:
    """Chunks by state, time to completion, energy so far, and how much of the records was read."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> dict[str, Any]:
        """Counts of the last plans; joules of all records that have them."""
        taken = costs(campaign)
        drawn = [cost.joules for cost in taken if cost.joules is not None]
        logs = [log for log in campaign.runs.followed.values() if log.part_read < 1]
        return {
            "progress": progress(campaign),
            "joules": sum(drawn) if drawn else None,
            "metered": sum(cost.metered for cost in taken),
            "records": campaign.records.read,
            "waiting": campaign.records.waiting,
            "unreadable": campaign.records.unreadable,
            "checks": sum((Counter(log.state.checks) for log in campaign.last), Counter()),
            "logs": {log.name: log.part_read for log in logs},
        }

    def show(self, facts: dict[str, Any]) -> None:
        """Tiles, and lines on what is still being read."""
        stand = facts["progress"]
        left = stand.because if stand.seconds_left is None else duration_text(stand.seconds_left)
        entries = [
            (f"of {stand.chunks:,} chunks are stored", f"{stand.stored:,}"),
            ("in work", f"{stand.running:,}"),
            ("failed in the last run", f"{stand.failed:,}"),
            ("time to completion" if stand.seconds_left is None else f"left {stand.because}", left),
            (f"energy of {facts['metered']:,} chunks", number(facts["joules"], "J")),
        ]
        if facts["joules"] is None:
            entries[-1] = ("energy", NOT_MEASURED)
        if checks := facts["checks"]:
            failed, retracted = checks[EventKind.DISAGREED], checks[EventKind.RETRACTED]
            entries.append(
                (f"of {checks['repeated']:,} chunks' checks failed; {retracted:,} retracted", f"{failed:,}")
            )
        notes = []
        if facts["waiting"]:
            whole = facts["records"] + facts["waiting"] + facts["unreadable"]
            notes.append(f"{facts['records']:,} of {whole:,} records are read: sums are of those")
        if facts["unreadable"]:
            notes.append(f"{facts['unreadable']:,} records cannot be read: quarkline verify names them")
        notes += [
            f"{100 * part:.0f} % of the log of run {run} is read" for run, part in facts["logs"].items()
        ]
        self.root.text = tiles(entries) + "".join(f"<p>{note}</p>" for note in notes)

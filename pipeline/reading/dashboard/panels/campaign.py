"""State of the campaign in numbers, and the failures of its last run."""

from __future__ import annotations

from collections import Counter

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.pace import seconds_left
from pipeline.reading.dashboard.look import NOT_MEASURED, number
from pipeline.reading.report import Details, Section, Tiles
from pipeline.worker.events import EventKind


def headline(campaign: Campaign) -> Section:
    """Chunks by state, time to completion, energy so far, and how much of records and logs was read."""
    grid, nodes = campaign.grid, campaign.records.nodes.values()
    seconds, because = seconds_left(campaign)
    drawn = [joules for node in nodes if (joules := node.total("joules")) is not None]
    left = because if seconds is None else duration_text(seconds)
    metered = f"energy of {sum(node.counted('joules') for node in nodes):,} chunks"
    entries = [
        (f"of {grid.count('total'):,} chunks are stored", f"{grid.count('stored'):,}"),
        ("in work", f"{grid.count('running'):,}"),
        ("failed in the last run", f"{grid.count('failed'):,}"),
        ("time to completion" if seconds is None else f"left {because}", left),
        (metered, number(sum(drawn), "J")) if drawn else ("energy", NOT_MEASURED),
    ]
    if checks := sum((Counter(log.state.checks) for log in campaign.last), Counter[str]()):
        failed, retracted = checks[EventKind.DISAGREED], checks[EventKind.RETRACTED]
        entries.append(
            (f"of {checks['repeated']:,} chunks' checks failed; {retracted:,} retracted", f"{failed:,}")
        )
    return Section("", "", [Tiles(entries), *_unread(campaign)])


def _unread(campaign: Campaign) -> list[str]:
    """Lines on what is still being read."""
    records, notes = campaign.records, list[str]()
    if records.waiting:
        whole = records.read + records.waiting + records.unreadable
        notes.append(f"{records.read:,} of {whole:,} records are read: sums are of those")
    if records.unreadable:
        notes.append(f"{records.unreadable:,} records cannot be read: quarkline verify names them")
    logs = [log for log in campaign.runs.followed.values() if log.part_read < 1]
    return notes + [f"{100 * log.part_read:.0f} % of the log of run {log.name} is read" for log in logs]


def failures(campaign: Campaign) -> Section:
    """Errors alike on one line, with a traceback of the first, of the runs at work or of the last one."""
    folds = [
        Details("\n".join(group.lines()), log.details.get(group.error) or "no traceback was written")
        for log in campaign.last
        for group in log.state.failures.groups.values()
    ]
    return Section("Failures of the last run", "" if folds else "none", folds)

"""Pace of a campaign, and the time that the rest takes."""

from __future__ import annotations

import time
from collections import Counter
from itertools import takewhile

import numpy as np

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.running.run_state import compiling

WINDOW = 600.0
"""Seconds back that a pace is taken from."""

MOST_BINS = 120
"""Of a figure over time."""


def seconds_left(campaign: Campaign) -> tuple[float | None, str]:
    """Seconds that the rest takes and by what pace; None where nothing says it, and why."""
    rows = campaign.grid.rows
    left = {row.node: count for row in rows if (count := len(row.place) - row.stored.total())}
    if not rows:
        return None, "no workflow was run into this store"
    if not left:
        return None, "complete"
    logs = [log for log in campaign.runs.followed.values() if not log.state.is_over]
    if not logs:
        return None, "no run is at work"
    now = time.time()
    since = now - WINDOW
    recent = Counter(
        node
        for log in logs
        for _, node in takewhile(lambda commit: commit[0] > since, reversed(log.committed))
    )
    if waited_for := compiling(event for log in logs for event in log.state.running.values()):
        return None, waited_for
    if not recent:
        return None, f"nothing was committed in the last {duration_text(WINDOW)}"
    began = min((log.state.first.time or now for log in logs), default=now)
    seconds = {name: node.mean("seconds") or 0.0 for name, node in campaign.records.nodes.items()}
    typical = float(np.mean(list(seconds.values()))) if seconds else 1.0
    pace = sum(seconds.get(node, typical) * number for node, number in recent.items())
    pace /= max(1.0, now - max(began, now - WINDOW))
    if not pace:
        return None, "the chunks so far took no time that counts"
    work = sum(seconds.get(node, typical) * number for node, number in left.items())
    never = sum(node not in seconds for node in left)
    note = f"; {never} of {len(left)} nodes are not timed yet and count as the mean" if never else ""
    return work / pace, f"at the rate of the last {duration_text(WINDOW)}{note}"


def throughput(campaign: Campaign) -> tuple[list[float], list[float], float]:
    """Middle of each bin (seconds since 1970), chunks a second in it, and its seconds, of runs followed."""
    logs = campaign.runs.followed.values()
    moments = np.concatenate([np.asarray(log.moments) for log in logs] or [np.empty(0)])
    if not len(moments):
        return [], [], 1.0
    first, last = float(moments.min()), float(moments.max())
    width = max(5.0, (last - first) / MOST_BINS)
    bins = int((last - first) // width) + 1
    counts = np.bincount(((moments - first) // width).astype(int), minlength=bins)
    return [first + (k + 0.5) * width for k in range(bins)], (counts / width).tolist(), width

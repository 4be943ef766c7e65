"""The part of a run that is done, and what the rest takes by what its chunks took so far."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median

from pipeline.declare.duration import duration_text
from pipeline.running.event_log import Tally


def part_done(
    missing: Mapping[str, int], seconds: Mapping[str, float], finished: Mapping[str, float]
) -> float:
    """Part of the work, 0 to 1, by nodes.

    missing: chunks that were to be computed. seconds: that a chunk took before; where any node's are unknown,
    all chunks count alike. finished: chunks that have ended, and parts of those in work.
    """
    weights = seconds if missing.keys() <= seconds.keys() else dict.fromkeys(missing, 1.0)
    total = sum(weights[node] * chunks for node, chunks in missing.items())
    done = sum(weights[node] * min(chunks, finished.get(node, 0)) for node, chunks in missing.items())
    return done / total if total > 0 else 1.0


def seconds_left(tally: Tally, finished: Mapping[str, float]) -> float | None:
    """Seconds that the rest of a run takes, if as many chunks stay in work at once.

    finished: as above. A chunk takes the median of the last ones of its node, without compilation of kernels;
    where none has ended yet, what it took before; else the mean of the other nodes. None where no chunk has
    begun, and where that mean would stand for most of the chunks that are left.
    """
    missing, before = tally.first.get("missing", {}), tally.first.get("seconds", {})
    left = {node: max(chunks - finished.get(node, 0), 0) for node, chunks in missing.items()}
    seconds = {node: median(tally.took[node]) if node in tally.took else before.get(node) for node in left}
    known = {node: each for node, each in seconds.items() if each is not None}
    if not tally.at_once or not known or 2 * sum(left[node] for node in known) < sum(left.values()):
        return None
    typical = fmean(known.values())
    return sum(chunks * known.get(node, typical) for node, chunks in left.items()) / tally.at_once


def time_left(seconds: float | None) -> str:
    """`about 2m 5s left`; nothing where it is not known, or none is left."""
    return "" if not seconds else f"about {duration_text(seconds)} left"

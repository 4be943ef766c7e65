"""The part of a run that is done, and what the rest takes at its pace so far."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.declare.duration import duration_text

EARLY = 0.03
"""Part of the work before which nothing is said of the time that the rest takes."""


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


def time_left(elapsed: float, part: float) -> str:
    """`about 2m 5s left`; nothing where too little is done, or all."""
    if part < EARLY or part >= 1:
        return ""
    return f"about {duration_text(elapsed * (1 - part) / part)} left"

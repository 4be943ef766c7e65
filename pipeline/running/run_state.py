"""The state of a run by its events: one fold for its display, status, dashboard, hand-over and forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from pipeline.declare.coordinates import Coordinate, Coordinates
from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted
from pipeline.running.failures import Failure, Failures
from pipeline.store.typed import field_types, fits, known_and_other
from pipeline.worker.events import ENDED, ChunkState, Event, EventKind

FAILURES_KEPT = 1000
"""Failures that a tally holds, the first ones."""

LATELY = 15
"""Chunks of a node whose seconds a tally holds, the last ones."""

NONE = Event("", 0.0)


@dataclass(frozen=True)
class CheckCounts:
    """Outcome of the checks of a run."""

    repeated: int = 0
    """Chunks of which a part was computed a second time, and agreed."""
    disagreed: int = 0
    """Checks that failed; each had its worker replaced."""
    retracted: int = 0
    """Chunks that were committed and moved aside."""

    def __str__(self) -> str:
        text = "checked: "
        if self.repeated:
            text += f"a part of {counted(self.repeated, 'chunk')} recomputed, all checksums compared"
        else:
            text += "all checksums match; no chunk was selected for recomputation"
        if self.disagreed:
            text += (
                f"; {counted(self.disagreed, 'check')} failed, {counted(self.retracted, 'chunk')} retracted"
            )
        return text


@dataclass
class RunState:
    """State of a run by its events, in few numbers for any number of chunks.

    All of it can be written to a file, the tally of the run, but for `failures`.
    """

    first: Event = NONE
    last: Event = NONE
    ends: dict[str, int] = field(default_factory=dict)
    """Number of chunks by how they ended."""
    running: dict[str, Event] = field(default_factory=dict)
    """By key, the last event of each chunk that has begun and not ended."""
    ended: dict[str, int] = field(default_factory=dict)
    """Number of chunks that ended, by node."""
    began: dict[str, float] = field(default_factory=dict)
    """By key, when each chunk in work began, by its worker's clock."""
    at_once: int = 0
    """Chunks in work when the last one began, which counts."""
    took: dict[str, list[float]] = field(default_factory=dict)
    """By node, seconds of the last `LATELY` chunks that were computed, without those that kernels took."""
    joules: dict[str, float] = field(default_factory=dict)
    """Energy of the chunks that were computed, by stage."""
    measured: dict[str, int] = field(default_factory=dict)
    """Number of chunks that it is of, by stage."""
    unmeasured: dict[str, int] = field(default_factory=dict)
    """Number of those whose energy nothing measured, by stage."""
    failed: list[Failure] = field(default_factory=list)
    """The first failures, up to `FAILURES_KEPT`."""
    checks: dict[str, int] = field(default_factory=dict)
    """Number of chunks that were repeated in part, of checks that failed, of chunks that were retracted."""
    failures: Failures = field(default_factory=Failures, compare=False)
    """All failures since this follows the run."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> RunState:
        """The state that a tally holds.

        Raises:
            ValueError, TypeError, AttributeError: it is damaged.
        """
        own, other = known_and_other(content, _TYPES)
        if not other.keys() <= _OBJECTS:
            raise ValueError(f"no state of a run: {sorted(other)!s:.200}")
        return cls(
            **{
                **own,
                "first": _event(content.get("first")),
                "last": _event(content.get("last")),
                "running": {key: Event.of(each) for key, each in content.get("running", {}).items()},
                "failed": [_failure(**each) for each in content.get("failed", ())],
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """The state as a tally holds it."""
        return {
            **{name: value for name, value in vars(self).items() if name != "failures"},
            "first": self.first.as_dict() if self.first.kind else {},
            "last": self.last.as_dict() if self.last.kind else {},
            "running": {key: event.as_dict() for key, event in self.running.items()},
            "failed": [vars(each) for each in self.failed],
        }

    @property
    def is_over(self) -> bool:
        """True once the driver has written that the run ends."""
        return self.last.kind == EventKind.RUN_ENDED

    @property
    def finished(self) -> Counter[str]:
        """Chunks that have ended, and parts of those in work, by node."""
        finished = Counter[str](self.ended)
        for event in self.running.values():
            finished[event.node] += event.done / max(event.total or 1, 1)  # type: ignore[assignment]
        return finished

    @property
    def check_counts(self) -> CheckCounts:
        """Outcome of the checks so far."""
        kinds = ("repeated", EventKind.DISAGREED, EventKind.RETRACTED)
        return CheckCounts(*(self.checks.get(kind, 0) for kind in kinds))

    def add(self, event: Event) -> None:
        """Take the next event into account."""
        self.first, self.last = self.first if self.first.kind else event, event
        kind = "repeated" if event.repeated else event.kind
        if kind in ("repeated", EventKind.DISAGREED, EventKind.RETRACTED):
            _count(self.checks, kind)
        if event.kind in (EventKind.STARTED, EventKind.PROGRESS):
            before = self.running.get(event.key)
            self.running[event.key] = replace(event, more={**before.more, **event.more}) if before else event
            if event.kind == EventKind.STARTED:
                self.began[event.key] = event.time
                self.at_once = len(self.began)
        elif event.kind == EventKind.COMPILING and (before := self.running.get(event.key)):
            self.running[event.key] = replace(before, kind=event.kind, more={**before.more, **event.more})
        elif event.kind in ENDED:
            self._end(event)

    def _end(self, event: Event) -> None:
        self.running.pop(event.key, None)
        _count(self.ends, str(event.kind))
        _count(self.ended, event.node)
        began = self.began.pop(event.key, None)
        if event.kind == ChunkState.DONE:
            if event.joules is None:
                _count(self.unmeasured, event.stage)
            else:
                _count(self.joules, event.stage, event.joules)
                _count(self.measured, event.stage)
            if began is not None:
                seconds = max(event.time - began - event.kernels, 0.0)
                self.took[event.node] = [*self.took.get(event.node, []), seconds][-LATELY:]
        if event.kind == ChunkState.FAILED:
            failure = Failure(event.node, event.coordinates, event.error)
            self.failures.add(failure)
            if len(self.failed) < FAILURES_KEPT:
                self.failed.append(failure)

    def part_done(self, finished: Mapping[str, float]) -> float:
        """Part of the work, 0 to 1, by the seconds that chunks of each node took before.

        Where any node's are unknown, all chunks count alike. finished: chunks that have ended, and parts of
        those in work, by node.
        """
        missing = self.first.missing
        weights: Mapping[str, float] = self.first.seconds
        if not missing.keys() <= weights.keys():
            weights = dict.fromkeys(missing, 1.0)
        total = sum(weights[node] * chunks for node, chunks in missing.items())
        done = sum(weights[node] * min(chunks, finished.get(node, 0)) for node, chunks in missing.items())
        return done / total if total > 0 else 1.0

    def seconds_left(self, finished: Mapping[str, float]) -> float | None:
        """Seconds that the rest of the run takes, if as many chunks stay in work at once.

        finished: as above. A chunk takes the median of the last ones of its node, without compilation of
        kernels; where none has ended yet, what it took before; else the mean of the other nodes. None where
        no chunk has begun, and where that mean would stand for most of the chunks that are left.
        """
        missing, before = self.first.missing, self.first.seconds
        left = {node: max(chunks - finished.get(node, 0), 0) for node, chunks in missing.items()}
        seconds = {node: median(self.took[node]) if node in self.took else before.get(node) for node in left}
        known = {node: each for node, each in seconds.items() if each is not None}
        if not self.at_once or not known or 2 * sum(left[node] for node in known) < sum(left.values()):
            return None
        typical = fmean(known.values())
        return sum(chunks * known.get(node, typical) for node, chunks in left.items()) / self.at_once


_OBJECTS = {"first", "last", "running", "failed"}
_TYPES = field_types(RunState, *_OBJECTS, "failures")


def time_left(seconds: float | None) -> str:
    """`about 2m 5s left`; nothing where it is not known, or none is left."""
    return "" if not seconds else f"about {duration_text(seconds)} left"


def compiling(running: Iterable[Event]) -> str:
    """`compiling kernels (12 so far)`, of all chunks in work that wait for some now; '' where none does.

    `waiting for kernels` where these have compiled none: other processes do.
    """
    waiting = (each for each in running if each.kind == EventKind.COMPILING)
    numbers = [number for each in waiting if isinstance(number := each.more.get("compiled"), int)]
    if not any(numbers):
        return "waiting for kernels" if numbers else ""
    return f"compiling kernels ({sum(numbers)} so far)"


def _count(counts: dict[str, Any], name: str, number: float = 1) -> None:
    counts[name] = counts.get(name, 0) + number


def _event(content: Mapping[str, Any] | None) -> Event:
    return Event.of(content) if content else NONE


def _failure(node: str, coordinates: Mapping[str, Sequence[Coordinate]], error: str) -> Failure:
    if not (fits(str)(node) and fits(str)(error) and fits(Coordinates)(coordinates)):
        raise ValueError(f"no failure: {node!r:.80}")
    return Failure(node, {dim: tuple(values) for dim, values in coordinates.items()}, error)

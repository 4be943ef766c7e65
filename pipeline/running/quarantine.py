"""Workers whose checks failed in a run, and the chunks that are computed again because of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import chain

from pipeline.declare.coordinates import describe
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.event_log import EventLog
from pipeline.running.failures import Failure
from pipeline.running.stopping import StopRequest
from pipeline.store.store import Store
from pipeline.worker.events import Event, EventKind

TRIALS = 2
"""Processes that compute a chunk before its disagreement is blamed on the chunk."""

STRIKES = 3
"""Failed checks at one place, a GPU or a machine, that end the run."""


class Quarantine:
    """Answer of a run to failed checks.

    The worker has ended itself. The chunk is computed again by another process; where that one disagrees as
    well, the chunk fails. If arithmetic is in doubt, all chunks that the worker committed in this run are
    moved aside, but for those of which a part was repeated, and with them what was computed from them.
    """

    def __init__(self, plan: Plan, store: Store, log: EventLog, stop: StopRequest) -> None:
        self._plan, self._store, self._log, self._stop = plan, store, log, stop
        self._unchecked: defaultdict[str, list[str]] = defaultdict(list)
        """Chunks that each worker committed, of which nothing was repeated."""
        self._trials: Counter[str] = Counter()
        self._strikes: Counter[str] = Counter()
        self._dropped: set[str] = set()
        self._tainted: dict[str, str] = {}
        """Committed chunks that are in doubt, and why."""
        self.hopeless: dict[str, Failure] = {}
        """Chunks that disagreed on several processes, by key."""

    def committed(self, event: Event) -> None:
        """Take note of a chunk that was committed."""
        if not event.repeated:
            self._unchecked[event.worker].append(event.key)

    def dropped(self, key: str) -> None:
        """Take note of a chunk that a worker gave up because one of its checks had failed."""
        self._dropped.add(key)

    def disagreed(self, event: Event) -> None:
        """Act on a failed check: of a chunk, on a worker, at a place."""
        key, where = event.key, event.place
        self._trials[key] += 1
        if self._trials[key] >= TRIALS:
            error = f"a check failed on {TRIALS} processes, so that no machine is to blame: {event.error}"
            self.hopeless[key] = Failure(event.node, event.coordinates, error)
        if event.in_doubt:
            for each in self._unchecked.pop(event.worker, []):
                self._tainted[each] = f"a worker on {where} computed wrongly: {event.error}"
            self._retract()
        self._strikes[where] += 1
        if self._strikes[where] >= STRIKES:
            self._stop.ask(f"{STRIKES} failed checks on {where}: do not trust that machine", grace=0.0)

    def settle(self) -> set[str]:
        """Keys to compute again; what was committed meanwhile from a chunk in doubt is moved aside, too."""
        self._retract()
        again = {chunk.key for chunk in self._below(self._tainted)} | self._dropped
        self._tainted, self._dropped = {}, set()
        return again - self.below(self.hopeless)

    def below(self, keys: Collection[str]) -> set[str]:
        """Keys of these chunks and of all that is computed from them."""
        return {chunk.key for chunk in self._below(keys)}

    def _below(self, keys: Collection[str]) -> list[Chunk]:
        if not keys:
            return []
        found: dict[str, Chunk] = {}
        for chunk in self._plan.everything:  # upstream before downstream
            if chunk.key in keys or any(each.key in found for each in chain(*chunk.inputs)):
                found[chunk.key] = chunk
        return [chunk for chunk in found.values() if not chunk.node.stage.transient]

    def _retract(self) -> None:
        """Move aside what is in doubt and there."""
        reasons = dict(self._tainted)
        for chunk in self._below(self._tainted):
            reason = reasons.get(chunk.key, "it was computed from a chunk that was retracted")
            stage = chunk.node.stage.name
            if grave := self._store.set_aside(stage, chunk.key, reason):
                name = f"{chunk.node.name} {describe(chunk.coordinates)}".rstrip()
                text = f"{name} is retracted ({reason}): moved to {grave}, and computed again"
                self._log(Event(EventKind.RETRACTED, stage=stage, key=chunk.key, message=text))

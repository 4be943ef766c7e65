"""A store as its pages see it: every fact in one place, each kept up to date at its own cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from pipeline.planning.manifest import Manifest
from pipeline.planning.manifest_files import manifests
from pipeline.reading.dashboard.facts.chunks import StoredChunks
from pipeline.reading.dashboard.facts.grid import Grid
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.reading.dashboard.facts.records import Records
from pipeline.reading.dashboard.facts.runs import RunLog, Runs
from pipeline.store.ledger import Ledger, LedgerState
from pipeline.store.lock import current_drivers
from pipeline.store.store import Store

FRESH = 0.2
"""Seconds for which what was read counts as new: several pages that look at once cost one look."""

READING = 0.1
"""Seconds of a look that go into records; half as many go into what workflows read."""

Own = TypeVar("Own", bound=OwnFacts)


class Campaign:
    """The facts of one store. Used by one thread at a time: `look` sees to that.

    Args:
        store: whose.
        own: kinds of facts that its workflows bring.
    """

    def __init__(self, store: Store, own: Sequence[type[OwnFacts]] = ()) -> None:
        self.store = store
        self.grid = Grid([])
        self.manifests: list[Manifest] = []
        self.chunks = StoredChunks(store)
        self._own = {kind: kind() for kind in own}
        self.runs = Runs(store, self._own.values())
        self.records = Records(store, self._own.values())
        self.ledger = LedgerState()
        self.driven: set[str] = set()
        """Runs whose drivers are at work."""
        self._written: object = None
        self._uncounted = True
        """Whether the grid is a new one, in which nothing is counted yet."""
        self._looked = -FRESH
        self._lock = Lock()

    def look(self, facts: Sequence[Callable[[Campaign], Any]]) -> list[Any]:
        """The values of these facts now."""
        with self._lock:
            if time.monotonic() - self._looked > FRESH:
                self.refresh()
                self._looked = time.monotonic()
            return [fact(self) for fact in facts]

    def own(self, kind: type[Own]) -> Own:
        """A workflow's own facts of this kind."""
        facts = self._own[kind]
        assert isinstance(facts, kind)
        return facts

    @property
    def live(self) -> list[RunLog]:
        """Logs of the runs whose drivers are at work."""
        logs = self.runs.followed.values()
        return [log for log in logs if log.name in self.driven and not log.state.is_over]

    @property
    def last(self) -> list[RunLog]:
        """Logs of the runs at work, or where there are none of the one that began last."""
        newest = self.runs.newest
        return self.live or ([newest] if newest else [])

    def planned_bytes(self, node: str) -> int | None:
        """Bytes that a task of a node was planned to need, by the runs that are followed."""
        sizes = [log.state.first.memory.get(node) for log in self.runs.followed.values()]
        return next((size for size in reversed(sizes) if size), None)

    def refresh(self) -> None:
        """Read what is new in the store."""
        self._read_manifests()
        anew, chunks = self.chunks.refresh(whole=self._uncounted)
        self._uncounted = False
        if anew:
            self.grid.clear()
            self.records.clear()
        for stage, keys in chunks.items():
            self.grid.add(stage, keys)
            self.records.wait_for(stage, sorted(keys))
        self.runs.refresh()
        self.driven = {driver.run for driver in current_drivers(self.store)}
        self.grid.mark(
            (key for log in self.live for key in log.state.running),
            {key for log in self.last for key in log.failed if key not in self.chunks},
        )
        self.records.refresh(READING)
        for own in self._own.values():
            own.refresh(self.store, self.manifests, self.chunks, READING / 2)
        self.ledger = Ledger(self.store).state()

    def _read_manifests(self) -> None:
        """Read the last plans, if there are others."""
        files = sorted((self.store.path / ".workflows").glob("[!.]*.json"))
        written = [(str(file), file.stat().st_mtime_ns) for file in files]
        if written != self._written:
            self._written, self.manifests = written, manifests(self.store)
            self.grid, self._uncounted = Grid(self.manifests), True


@cache
def campaign_of(folder: Path, own: tuple[type[OwnFacts], ...] = ()) -> Campaign:
    """The facts of the store in a folder, shared by all who look at it in this process."""
    return Campaign(Store.existing(folder), own)

"""Facts that a workflow brings to the dashboard of its results."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pipeline.planning.manifest import Manifest
from pipeline.store.record import Record
from pipeline.store.store import Store
from pipeline.worker.events import Event


class OwnFacts:
    """Base of a workflow's own facts, kept up to date beside the engine's; each takes what it needs."""

    def clear(self) -> None:
        """Forget what chunks said, for some were removed."""

    def add_record(self, stage: str, key: str, record: Record) -> None:
        """Take the record of a committed chunk into account."""

    def add_event(self, run: str, event: Event) -> None:
        """Take an event of a run that is followed into account."""

    def refresh(
        self, store: Store, manifests: Sequence[Manifest], stored: Container[str], seconds: float
    ) -> None:
        """Read on in the store, for so many seconds; stored: keys of all chunks that are there."""

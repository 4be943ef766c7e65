"""Facts that a workflow brings to the dashboard of its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.worker.events import Event

if TYPE_CHECKING:
    from pipeline.reading.dashboard.facts.campaign import Campaign


class OwnFacts:
    """Base of a workflow's own facts, kept up to date beside the engine's; each takes what it needs."""

    def clear(self) -> None:
        """Forget what chunks said, for some were removed."""

    def add_record(self, stage: str, key: str, record: Mapping[str, Any]) -> None:
        """Take the record of a committed chunk into account."""

    def add_event(self, run: str, event: Event) -> None:
        """Take an event of a run that is followed into account."""

    def refresh(self, campaign: Campaign, seconds: float) -> None:
        """Read on in the store, for so many seconds."""

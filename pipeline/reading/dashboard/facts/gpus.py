"""Figures of each GPU from records: memory, use, energy and traffic on NVLink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class GpuFigures:
    """Sums over the chunks that were computed on a GPU, beside others or alone. None: no record has it."""

    place: str
    """Machine and place on the PCI bus."""
    chunks: int = 0
    seconds: float = 0.0
    most_bytes: int | None = None
    """Of any chunk."""
    joules: float | None = None
    busy_seconds: float | None = None
    """In which a kernel ran."""
    sent: int | None = None
    received: int | None = None
    """Bytes over NVLink."""
    traffic_seconds: float = 0.0
    """Of the chunks whose traffic was counted."""

    def add(self, seconds: float, facts: Mapping[str, Any]) -> None:
        """Take a chunk into account, of which a record says these facts."""
        busy, sent, taken = facts.get("busy"), facts.get("nvlink_sent"), facts.get("device_bytes")
        self.chunks, self.seconds = self.chunks + 1, self.seconds + seconds
        self.most_bytes = self.most_bytes if taken is None else max(self.most_bytes or 0, taken)
        self.joules = added(self.joules, facts.get("joules"))
        self.busy_seconds = added(self.busy_seconds, None if busy is None else busy * seconds)
        self.sent, self.received = added(self.sent, sent), added(self.received, facts.get("nvlink_received"))
        self.traffic_seconds += 0.0 if sent is None else seconds


def added(sum_: Any, more: Any) -> Any:
    """A sum over what was measured; None where nothing was."""
    return sum_ if more is None else (sum_ or 0) + more

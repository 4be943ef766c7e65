"""The ledger of a store's campaign, `<store>/.ledger.jsonl`: jobs and what they cost, never rewritten.

One JSON object a line, `{"format": 1, "time": ..., "event": ..., ...}`. A line is one `write` to a file that
is open for appending, so that drivers on several machines share it; a line that was cut off is skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.store.store import Store

FORMAT = 1


class LedgerEvent(StrEnum):
    """Kinds of entries, with what they hold beside the time (seconds since 1970)."""

    SUBMITTED = "submitted"
    """job (id), chain, name, after (id of the job that it waits for, or null), nodes, walltime (seconds),
    memory (bytes of a node, or null)."""
    BEGAN = "began"
    """job, chain, host, nodes, missing (chunks of the plan that are not committed)."""
    ENDED = "ended"
    """job, chain, seconds, node_seconds, joules (null: nothing measures it), commits, missing, reason."""
    BUDGET = "budget"
    """node_hours and joules that the campaign may take; null: no limit."""
    STOPPED = "stopped"
    """reason: why the campaign submits no further jobs; chain, or null for all."""


@dataclass(frozen=True)
class Ledger:
    """Entries of a store, oldest first."""

    store: Store

    @property
    def path(self) -> Path:
        """The file; absent before the first entry."""
        return self.store.path / ".ledger.jsonl"

    def add(self, event: LedgerEvent, **facts: Any) -> None:
        """Append an entry, durably.

        Raises:
            StoreError: it cannot be written.
        """
        self.bring({"format": FORMAT, "time": time.time(), "event": event, **facts})

    def bring(self, entry: Mapping[str, Any]) -> None:
        """Append an entry of another ledger as it is, durably. Raises StoreError."""
        line = json.dumps(entry)
        with self.store.writing("its ledger"):
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(handle, f"{line}\n".encode())
                os.fsync(handle)
            finally:
                os.close(handle)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries that are whole."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "event" in entry:
                yield entry

"""Committed chunks of a store, kept up to date by listing only those folders that changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pipeline.store.shelves import is_shelf, listed, loose, shelved
from pipeline.store.store import Store

SETTLED_NS = 2_000_000_000
"""A folder that changed more recently may change again within one tick of its clock: it is listed again."""


Entries = Callable[[str], Iterator[tuple[str, os.DirEntry[str]]]]


@dataclass
class Changes:
    """Keys that came into a store or left it since it was last asked, by stage."""

    added: dict[str, list[str]] = field(default_factory=dict)
    removed: bool = False


class StoredChunks:
    """The keys of all committed chunks, by folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folders: dict[str, tuple[int, frozenset[str]]] = {}
        """Time of the last change, 0 while that is recent, and keys of each folder."""
        self.stages: dict[str, set[str]] = {}
        """All keys."""

    def __len__(self) -> int:
        return sum(map(len, self.stages.values()))

    def __contains__(self, key: object) -> bool:
        return any(key in keys for keys in self.stages.values())

    def refresh(self) -> Changes:
        """List what changed."""
        changes, now, seen = Changes(), time.time_ns(), set[str]()
        for stage in listed(self._store.path):
            if stage.name[0] == "." or not stage.is_dir():
                continue
            self._look(stage.name, stage, now, changes, loose)
            shelves = [entry for entry in listed(stage.path) if is_shelf(entry)]
            for shelf in shelves:
                self._look(stage.name, shelf, now, changes, shelved)
            seen.update((stage.path, *(shelf.path for shelf in shelves)))
        for gone in self._folders.keys() - seen:
            changes.removed = bool(self._folders.pop(gone)[1]) or changes.removed
        if changes.removed:
            self.stages = {}
            for folder, (_, keys) in self._folders.items():
                self.stages.setdefault(self._stage_of(folder), set()).update(keys)
        return changes

    def _stage_of(self, folder: str) -> str:
        return os.path.relpath(folder, self._store.path).partition(os.sep)[0]

    def _look(
        self, stage: str, folder: os.DirEntry[str], now: int, changes: Changes, entries: Entries
    ) -> None:
        changed = folder.stat().st_mtime_ns
        listed_at, before = self._folders.get(folder.path, (0, frozenset[str]()))
        if changed == listed_at:
            return
        present = frozenset(key for key, _ in entries(folder.path))
        self._folders[folder.path] = (changed if now - changed > SETTLED_NS else 0, present)
        if new := present - before:
            changes.added.setdefault(stage, []).extend(new)
            self.stages.setdefault(stage, set()).update(new)
        changes.removed = changes.removed or bool(before - present)

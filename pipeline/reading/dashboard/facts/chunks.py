"""Committed chunks of a store, kept up to date by listing only those folders that changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from pipeline.store.shelves import is_shelf, listed, loose, shelved
from pipeline.store.store import Store

SETTLED_NS = 2_000_000_000
"""A folder that changed more recently may change again within one tick of its clock: it is listed again."""

NONE = (0, frozenset[str]())


class StoredChunks:
    """The keys of all committed chunks, by stage."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folders: dict[tuple[str, str], tuple[int, frozenset[str]]] = {}
        """By stage and folder: time of the last change, 0 while that is recent, and keys."""
        self.stages: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.stages.values()))

    def __contains__(self, key: object) -> bool:
        return any(key in keys for keys in self.stages.values())

    def refresh(self, whole: bool = False) -> tuple[bool, Mapping[str, Collection[str]]]:
        """False and the new keys, by stage; True and all keys if whole, or where some were removed.

        Raises InputError, OSError where a folder is not to be listed: nothing has changed then.
        """
        folders: dict[tuple[str, str], tuple[int, frozenset[str]]] = {}
        added, removed, now = dict[str, list[str]](), False, time.time_ns()
        for stage in listed(self._store.path):
            if stage.name[0] == "." or not stage.is_dir():
                continue
            shelves = [entry for entry in listed(stage.path) if is_shelf(entry)]
            for folder, entries in ((stage, loose), *((shelf, shelved) for shelf in shelves)):
                changed, place = folder.stat().st_mtime_ns, (stage.name, folder.path)
                settled, known = self._folders.get(place, NONE)
                keys = known if changed == settled else frozenset(key for key, _ in entries(folder.path))
                folders[place] = (changed if now - changed > SETTLED_NS else 0, keys)
                if keys is not known and keys != known:
                    added.setdefault(stage.name, []).extend(keys - known)
                    removed = removed or not known <= keys
        removed = removed or any(keys for gone, (_, keys) in self._folders.items() if gone not in folders)
        self._folders = folders
        if removed:
            self.stages = {stage: set() for stage, _ in self._folders}
            for (stage_name, _), (_, keys) in self._folders.items():
                self.stages[stage_name].update(keys)
        for stage_name, new in added.items():
            self.stages.setdefault(stage_name, set()).update(new)
        return (True, self.stages) if removed or whole else (False, added)

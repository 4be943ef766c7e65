"""Rereading a store: is every committed chunk what was written?"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

from pipeline.declare.text import counted, reason
from pipeline.store.errors import DamagedChunkError
from pipeline.store.lock import driver_lock
from pipeline.store.record import is_sealed
from pipeline.store.shelves import refuse_links
from pipeline.store.store import Store
from stages.base.errors import InputError

READERS = 4

Result = TypeVar("Result")


@dataclass(frozen=True)
class Damage:
    """A chunk that is not what its record says."""

    stage: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.key[:12]}: {self.problem}"


@dataclass(frozen=True)
class Verification:
    """Number of chunks that were read, those found damaged, and those that the file system did not give."""

    checked: int
    damaged: tuple[Damage, ...]
    removed: bool
    """Whether damaged chunks were taken away."""
    unreadable: tuple[Damage, ...] = ()
    unsealed: int = 0
    """Chunks of format 1, whose record has no digest of its own."""

    def __str__(self) -> str:
        ended = f"{len(self.damaged)} damaged{' and removed' if self.removed and self.damaged else ''}"
        lines = [f"{counted(self.checked, 'chunk')} read, {ended}", *map(str, self.damaged)]
        if self.unreadable:
            lines.append(
                f"{counted(len(self.unreadable), 'chunk')} cannot be read now, none of them removed:"
            )
            lines += map(str, self.unreadable)
        if self.unsealed:
            lines.append(
                f"{counted(self.unsealed, 'chunk')} of format 1: no key and digest in the record itself"
            )
        return "\n".join(lines)


def verify(
    store: Store | str | os.PathLike[str],
    *,
    remove: bool = False,
    listener: Callable[[int, int], None] | None = None,
) -> Verification:
    """Read every array of every chunk and compare it with the digest in its record.

    Args:
        store: the chunks that are read, or their folder.
        remove: take damaged chunks away, so that the next run computes them again. Chunks that cannot be read
            (I/O errors, permissions) stay. Takes the driver's lock.
        listener: called with (chunks read, all chunks) now and then.

    Raises:
        InputError: there is no store, or `remove` while a run drives it.
    """
    store = Store.existing(store)
    with driver_lock(store, "verify") if remove else nullcontext():
        chunks = sorted(store.chunks())
        damaged, unreadable, unsealed = [], [], 0
        with ThreadPoolExecutor(READERS) as pool:
            for done, found in enumerate(pool.map(lambda chunk: _read(store, *chunk), chunks), start=1):
                if isinstance(found, bool):
                    unsealed += not found
                elif isinstance(found[1], DamagedChunkError):
                    damaged.append(found[0])
                else:
                    unreadable.append(found[0])
                if listener:
                    listener(done, len(chunks))
        for damage in damaged if remove else ():
            store.remove(damage.stage, damage.key)
    return Verification(len(chunks), tuple(damaged), remove, tuple(unreadable), unsealed)


def with_sound_chunks(store: Store, attempt: Callable[[], Result], tell: Callable[[str], None]) -> Result:
    """Result of `attempt`, which is repeated after damaged chunks that it read were moved aside.

    Raises:
        DamagedChunkError: one that is damaged a second time, or cannot be moved.
    """
    again: set[str] = set()
    while True:
        try:
            return attempt()
        except DamagedChunkError as error:
            if error.key in again:
                raise
            again.add(error.key)
            for line in set_aside(store, error):
                tell(f"{line}, and computed again")


def set_aside(store: Store, found: DamagedChunkError) -> list[str]:
    """Move a chunk that was found damaged, and others of its stage whose records are, to `.damaged/`.

    Returns a line on each, for people. Raises `found` again where they cannot be moved.
    """
    lines = []
    for key in [found.key, *sorted(store.keys(found.stage) - {found.key})]:
        error = found
        if key != found.key:
            try:
                store.record(found.stage, key)
                continue
            except DamagedChunkError as another:
                error = another
            except InputError:
                continue
        why = reason(error.__cause__ or error)
        try:
            grave = store.set_aside(found.stage, key, why)
        except InputError:
            raise found from None
        moved = f", moved to {grave}" if grave else ""
        lines.append(f"chunk {found.stage}/{key[:12]} of store {store.path} is damaged ({why}){moved}")
    return lines


def _read(store: Store, stage: str, key: str) -> bool | tuple[Damage, InputError]:
    """What is wrong with a chunk; or whether its record is sealed."""
    from pipeline.store.group import array_digest

    try:
        record = store.record(stage, key)
        arrays = store.arrays(stage, key)
        with store.reading(stage, key):
            refuse_links(store.location(stage, key))
        wrong = [n for n, array in arrays.items() if array_digest(array) != record["arrays"][n]["digest"]]
        if wrong:
            raise DamagedChunkError(f"digest of {', '.join(wrong)} differs from the record", stage, key)
        return is_sealed(record)
    except InputError as error:
        return Damage(stage, key, reason(error.__cause__ or error)), error

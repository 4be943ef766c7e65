"""Rereading a store: is every committed chunk what was written?"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.declare.text import counted
from pipeline.store.group import array_digest
from pipeline.store.store import Store
from stages.errors import InputError

READERS = 4


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
    """Number of chunks that were read, and those found damaged."""

    checked: int
    damaged: tuple[Damage, ...]
    removed: bool

    def __str__(self) -> str:
        ended = f"{len(self.damaged)} damaged{' and removed' if self.removed and self.damaged else ''}"
        return "\n".join([f"{counted(self.checked, 'chunk')} read, {ended}", *map(str, self.damaged)])


def verify(
    store: Store, *, remove: bool = False, listener: Callable[[int, int], None] | None = None
) -> Verification:
    """Read every array of every chunk and compare it with the digest in its record.

    Args:
        store: the chunks that are read.
        remove: take damaged chunks away, so that the next run computes them again.
        listener: called with (chunks read, all chunks) now and then.

    Raises:
        InputError: there is no store.
    """
    if not store.exists():
        raise InputError(f"there is no store at {store.path}")
    chunks = [(stage, key) for stage in store.stages() for key in sorted(store.keys(stage))]
    damaged = []
    with ThreadPoolExecutor(READERS) as pool:
        for done, damage in enumerate(pool.map(lambda chunk: _damage(store, *chunk), chunks), start=1):
            if damage:
                damaged.append(damage)
            if listener:
                listener(done, len(chunks))
    if remove:
        for damage in damaged:
            store.remove(damage.stage, damage.key)
    return Verification(len(chunks), tuple(damaged), remove)


def _damage(store: Store, stage: str, key: str) -> Damage | None:
    try:
        expected = store.record(stage, key)["arrays"]
        digests = {name: array_digest(array) for name, array in store.arrays(stage, key).items()}
    except InputError as error:
        return Damage(stage, key, str(error.__cause__ or error))
    wrong = [name for name, digest in digests.items() if digest != expected[name]["digest"]]
    return Damage(stage, key, f"digest of {', '.join(wrong)} differs from the record") if wrong else None

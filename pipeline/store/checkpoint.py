"""The state of a long computation on disk, so that it goes on where it was after its process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from pipeline.store.durable import flush, flush_group, is_at
from pipeline.store.errors import StoreError
from pipeline.store.shelves import inside

SHARE = 0.1
"""Of a computation's time, at most, that goes into saving its state: what comes sooner is not saved."""

FIRST_SAVE = 0.02
"""Seconds that saving is taken to need before it was done once."""

PATIENCE = 90.0
"""Seconds to wait for another process that holds the folder: an orphan of a killed driver leaves sooner."""


class FolderCheckpoint:
    """Named arrays in a folder, replaced as a whole: after a crash at any instant the last save is there.

    At most one process uses a folder at a time, by a lock that dies with it. A computation is never stopped
    by its checkpoint: one that is damaged counts as none, one that cannot be written is left out, and `tell`
    is given a sentence for people.

    Args:
        folder: made when something is saved.
        tell: given a sentence for people where something is left out.
        within: a folder that is never made, the store's: what is gone with its file system stays gone.
    """

    def __init__(
        self, folder: Path, tell: Callable[[str], None] = lambda text: None, within: Path | None = None
    ) -> None:
        self._folder = folder
        self._within = within
        self._tell = tell
        self._handle: IO[bytes] | None = None
        """Closed with this object, if it is dropped."""
        self._refused = False
        self._next_save = time.monotonic() + FIRST_SAVE / SHARE

    def load(self) -> dict[str, np.ndarray] | None:
        """The state that was saved last; None if there is none that can be read."""
        if not self._folder.is_dir() or not self._acquire():
            return None
        from pipeline.store.group import open_group

        for state in reversed(self._states()):
            try:
                group = open_group(state)
                state_arrays = {name: np.asarray(group[name][...]) for name in group.attrs["names"]}  # type: ignore
            except Exception as error:  # of whatever kind: a computation goes on without
                self._tell(f"the checkpoint {state} is damaged ({error}): it is left out")
                continue
            return state_arrays
        return None

    def save(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Replace what was saved by the NumPy or CuPy arrays that `state` returns.

        Unless the last time was too short ago: `state` is then not called.
        """
        if time.monotonic() < self._next_save or not self._acquire():
            return
        began = time.monotonic()
        draft = self._folder / f"draft-{uuid.uuid4().hex}"
        try:
            arrays = state()
            draft.mkdir()  # not its parents: a store that vanished is not made anew
            _write(draft, arrays)
            self._publish(draft)
        except OSError as error:
            self._tell(f"the checkpoint {self._folder} cannot be written: {error.strerror or error}")
            shutil.rmtree(draft, ignore_errors=True)
        ended = time.monotonic()
        self._next_save = ended + (ended - began) / SHARE

    def remove(self) -> None:
        """Remove the folder: its computation has ended."""
        if self._folder.is_dir() and self._acquire():
            remove_checkpoint(self._folder)
        self.close()

    def close(self) -> None:
        """Release the folder to other processes."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _publish(self, draft: Path) -> None:
        """Give a complete draft the next number, then drop everything else."""
        states = self._states()
        number = int(states[-1].name.partition("-")[2]) + 1 if states else 1
        new = self._folder / f"state-{number:08d}"
        os.rename(draft, new)
        flush(self._folder)
        for other in self._folder.iterdir():
            if other.is_dir() and other != new:
                shutil.rmtree(other, ignore_errors=True)

    def _states(self) -> list[Path]:
        """Complete states, the oldest first."""
        return sorted(self._folder.glob("state-*"))

    def _acquire(self) -> bool:
        """Be the one user of the folder, which is made if it is not there."""
        if self._handle is not None:
            return True
        if self._refused:
            return False
        try:
            if self._within is not None:
                self._within.stat()
                inside(self._within, *self._folder.relative_to(self._within).parts, "lock")
            self._handle = _locked(self._folder)
        except (OSError, StoreError) as error:
            why = getattr(error, "strerror", None) or error
            self._tell(f"the checkpoint {self._folder} cannot be used: {why}")
        self._refused = self._handle is None
        return not self._refused


def checkpoints(folder: Path) -> Iterator[Path]:
    """The folders of all checkpoints below the one where a store keeps them."""
    for path in sorted(folder.glob("*/*/lock")):
        if not (path.parent.is_symlink() or path.parents[1].is_symlink()):
            yield path.parent


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint's folder; what else lies beside it stays."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in folder.parents[:2]:
        with suppress(OSError):
            parent.rmdir()


def _write(draft: Path, arrays: Mapping[str, Any]) -> None:
    """One array after the other comes to the host."""
    from pipeline.store.group import create_group, write_array

    group = create_group(draft, {"names": list(arrays)})
    for name, value in arrays.items():
        write_array(group, name, np.asarray(value.get() if hasattr(value, "get") else value))
    flush_group(draft)


def _locked(folder: Path) -> IO[bytes]:
    """A file that holds the lock of the folder. Raises OSError where another keeps it too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        _make(folder)
        handle = open(folder / "lock", "ab")  # noqa: SIM115 (whoever holds the lock closes it)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(handle.fileno(), folder / "lock"):
                return handle
        except BlockingIOError:
            if time.monotonic() > deadline:
                handle.close()
                raise
            time.sleep(0.1)
        handle.close()


def _make(folder: Path) -> None:
    new = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for parent in new:
        flush(parent.parent)

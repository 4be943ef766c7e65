"""The driver's lock on a store: held by the operating system, gone with the process."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.store.store import Store, StoreError
from stages.errors import InputError

ATTEMPTS = 3


@dataclass(frozen=True)
class Driver:
    """The process that drives a store."""

    host: str
    pid: int
    run: str

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host})"


@contextmanager
def driver_lock(store: Store, run: str) -> Iterator[Driver]:
    """Be the one driver of a store while the block runs.

    Raises:
        InputError: another driver holds it; names that one.
        StoreError: the lock file cannot be written.
    """
    path = _path(store)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"store {store.path} cannot be written: {error.strerror}") from error
    try:
        if not _lock_soon(handle):
            raise InputError(
                f"store {store.path} is driven by {_read(path) or 'another run'}: "
                "wait until it ends, stop it, or use another store"
            )
        driver = Driver(socket.gethostname(), os.getpid(), run)
        os.ftruncate(handle, 0)
        with suppress(OSError):  # a name for others to read; garbage is collected on a full disk too
            os.pwrite(handle, json.dumps(asdict(driver)).encode(), 0)
        yield driver
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def current_driver(store: Store) -> Driver | None:
    """The driver of a store at this moment, if there is one."""
    path = _path(store)
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return None if _try_lock(handle, fcntl.LOCK_SH) else _read(path)
    finally:
        os.close(handle)


def _path(store: Store) -> Path:
    return store.path / ".lock"


def _lock_soon(handle: int) -> bool:
    """Tries a few times: `current_driver` holds the lock for an instant."""
    for _ in range(ATTEMPTS):
        if _try_lock(handle, fcntl.LOCK_EX):
            return True
        time.sleep(0.05)
    return False


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> Driver | None:
    try:
        return Driver(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None

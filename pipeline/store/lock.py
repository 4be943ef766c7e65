"""The driver's lock on a store: held by the operating system, and by a lease file that its holder renews.

`flock` is gone with its process, but some file systems do not have it, and on some it holds on one node
alone. The lease is therefore taken beside it, always: a file made with O_EXCL, whose time is renewed all
the while. Times that are compared are of the file system's own clock. A lease of a process that is dead on
this very machine, or that nobody renewed for `STALE` seconds, is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.store.errors import StoreError
from pipeline.store.store import Store
from stages.errors import InputError

ATTEMPTS = 3

BEAT = 5.0
"""Seconds between two signs of life of a lease's holder."""

STALE = 60.0
"""Seconds without one after which a lease counts for nothing."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Driver:
    """The process that drives a store."""

    host: str
    pid: int
    run: str
    boot: str = ""

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host})"

    @property
    def is_dead(self) -> bool:
        """True if it ran on this machine, as it was booted, and does not any more."""
        if (self.host, self.boot) != (socket.gethostname(), _boot()):
            return False
        with suppress(OSError):
            if Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True  # it ended, and its parent did not ask for its status yet
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


@contextmanager
def driver_lock(store: Store, run: str) -> Iterator[Driver]:
    """Be the one driver of a store while the block runs.

    Waits up to `STALE` seconds for the lease of a driver of another machine that gives no sign of life.

    Raises:
        InputError: another driver holds it; names that one.
        StoreError: the lock cannot be written.
    """
    driver = Driver(socket.gethostname(), os.getpid(), run, _boot())
    try:
        handle = os.open(store.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"store {store.path} cannot be written: {error.strerror}") from error
    try:
        if not _lock_soon(store, handle):
            raise _driven(store)
        lease = _acquire_lease(store, driver)
        ended = threading.Event()
        beating = threading.Thread(target=_beat, args=(store, lease, ended), daemon=True)
        beating.start()
        try:
            yield driver
        finally:
            ended.set()
            beating.join()
            if _is_at(lease, _lease(store)):
                with suppress(OSError):
                    _lease(store).unlink()
            os.close(lease)
    finally:
        os.close(handle)


def current_driver(store: Store) -> Driver | None:
    """The driver of a store at this moment, if there is one."""
    with suppress(OSError):
        driver = _read(_lease(store))
        if driver is None or driver.is_dead:
            return None
        return driver if time.time() - _lease(store).stat().st_mtime < 2 * STALE else None
    return None


def _lease(store: Store) -> Path:
    return store.path / ".lease"


def _driven(store: Store) -> InputError:
    return InputError(
        f"store {store.path} is driven by {_read(_lease(store)) or 'another run'}: "
        "wait until it ends, stop it, or use another store"
    )


def _lock_soon(store: Store, handle: int) -> bool:
    """Tries a few times; True where the file system has no such locks, for the lease holds there."""
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return True
            raise StoreError(
                f"store {store.path} cannot be locked: {error.strerror}; ask for the mount option `flock` "
                "(Lustre) or a running lock service (NFS), or use another file system"
            ) from error
    return False


def _acquire_lease(store: Store, driver: Driver) -> int:
    """An open lease file that is this driver's."""
    path = _lease(store)
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            _take_away(store)
            continue
        except OSError as error:
            raise StoreError(f"store {store.path} cannot be written: {error.strerror}") from error
        with suppress(OSError):  # a name for others to read; garbage is collected on a full disk too
            os.pwrite(handle, json.dumps(asdict(driver)).encode(), 0)
        return handle


def _take_away(store: Store) -> None:
    """Remove a lease that counts for nothing, after watching it as long as that takes; else InputError."""
    path = _lease(store)
    try:
        seen = path.stat()
        holder = _read(path)
        if not (holder and holder.is_dead):
            here = holder is not None and (holder.host, holder.boot) == (socket.gethostname(), _boot())
            _watch(store, seen, 0.0 if here else STALE)
        grave = path.with_name(f".lease-{uuid.uuid4().hex[:8]}")
        os.rename(path, grave)
        if not os.path.samestat(grave.stat(), seen):  # somebody was faster, and drives the store now
            with suppress(OSError):
                os.link(grave, path)
            grave.unlink()
            raise _driven(store)
        grave.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"store {store.path}: its lease cannot be read: {error.strerror}") from error


def _watch(store: Store, seen: os.stat_result, patience: float) -> None:
    """Wait until a lease is stale; InputError as soon as it is renewed, or where that takes too long."""
    probe = store.path / f".lease-{uuid.uuid4().hex[:8]}"
    probe.touch()
    try:
        silent = probe.stat().st_mtime - seen.st_mtime
    finally:
        probe.unlink()
    if STALE - silent > patience + BEAT:
        raise _driven(store)
    deadline = time.monotonic() + STALE - max(0.0, silent)
    while time.monotonic() < deadline:
        time.sleep(min(BEAT, max(0.01, deadline - time.monotonic())))
        if _lease(store).stat().st_mtime_ns != seen.st_mtime_ns:
            raise _driven(store)


def _beat(store: Store, lease: int, ended: threading.Event) -> None:
    """Renew the lease while it is this process's."""
    while not ended.wait(BEAT):
        with suppress(OSError):
            if not _is_at(lease, _lease(store)):
                return
            os.utime(lease)


def _is_at(handle: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read(path: Path) -> Driver | None:
    try:
        return Driver(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None

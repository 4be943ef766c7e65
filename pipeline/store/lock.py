"""Locks of a store for its driver: one process alone, or several that share it and claim their work.

The operating system's `flock` says it at once and is gone with its process; leases say it where that does not
hold. One driver alone has the lease `.lease`, each of several its own below `.drivers/`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pipeline.store import lease
from pipeline.store.claims import Claims
from pipeline.store.durable import flocked
from pipeline.store.errors import StoreError
from pipeline.store.lease import Driver, HeldError, Witness, no_witness, other_code, read_driver, this_driver
from pipeline.store.store import Store
from stages.base.errors import InputError

ATTEMPTS = 3


@contextmanager
def driver_lock(store: Store, run: str, witness: Witness = no_witness) -> Iterator[Driver]:
    """Be the one driver of a store while the block runs.

    Waits up to a minute for the lease of a driver of another machine that gives no sign of life.

    Raises:
        InputError: another driver holds it; names that one.
        StoreError: the lock cannot be written.
    """
    driver = this_driver(run)
    with ExitStack() as stack:
        _lock(store, stack, fcntl.LOCK_EX)
        with _telling(store):
            stack.enter_context(lease.held(_lease(store), driver, witness))
            for other in _leases(store):
                lease.clear(other, witness)
        yield driver


@contextmanager
def shared_lock(
    store: Store, run: str, witness: Witness = no_witness, code: Mapping[str, str] | None = None
) -> Iterator[Claims]:
    """Be one of several drivers of a store while the block runs; claims say whose work is whose.

    code: digests of this driver's packages, by name, to be compared with those of the others.

    Raises:
        InputError: a driver holds it alone, or one that shares it has other code; names that one.
        StoreError: the lock cannot be written.
    """
    driver, folder = this_driver(run, code), _drivers(store)
    with ExitStack() as stack:
        with store.writing("its lock"):
            folder.mkdir(exist_ok=True)
        _lock(store, stack, fcntl.LOCK_SH)
        with _telling(store):
            stack.enter_context(lease.held(store.inside(".drivers", run), driver, witness))
            lease.clear(_lease(store), witness)
            _refuse_other_code(store, driver, witness)
            _wait_for_housekeeping(store)
        claims = Claims(store, run, folder, witness)
        stack.callback(claims.close)
        yield claims


@contextmanager
def alone_for_a_moment(store: Store) -> Iterator[bool]:
    """True while no other driver, alone or sharing, can begin or be at work; for housekeeping.

    Only for who has the shared lock of a store, and by leases, which hold everywhere.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(lease.held(_housekeeping(store), this_driver("housekeeping"), no_witness))
        except HeldError:
            yield False
        else:
            yield len(_leases(store)) <= 1


def current_drivers(store: Store) -> list[Driver]:
    """The drivers of a store at this moment."""
    return [driver for path in (_lease(store), *_leases(store)) if (driver := _at_work(path))]


def current_driver(store: Store) -> Driver | None:
    """The driver of a store at this moment, or the first of several, if there is one."""
    return next(iter(current_drivers(store)), None)


def _at_work(path: Path) -> Driver | None:
    with suppress(OSError):
        driver = read_driver(path)
        if (
            driver
            and not driver.is_dead
            and lease.clock(path.parent) - path.stat().st_mtime < 2 * lease.STALE
        ):
            return driver
    return None


def _lease(store: Store) -> Path:
    return store.inside(".lease")


def _drivers(store: Store) -> Path:
    return store.inside(".drivers")


def _housekeeping(store: Store) -> Path:
    return store.inside(".housekeeping")


def _wait_for_housekeeping(store: Store) -> None:
    """Wait until nobody removes what drivers left: it could be this one's next."""
    while _housekeeping(store).exists():
        with suppress(HeldError):
            lease.clear(_housekeeping(store), no_witness)
        time.sleep(0.05)


def _refuse_other_code(store: Store, driver: Driver, witness: Witness) -> None:
    """Raise InputError where a driver at work has other code, or is of a version that does not say which."""
    for path in _leases(store) if driver.code else ():
        other = _written(path)
        there = other.code if other else {}
        differing = other_code(there, driver.code)
        if path.name == driver.run or (there and not differing) or not path.exists():
            continue
        try:
            lease.clear(path, witness)
        except HeldError:
            which = differing or "an older version, which does not say what code it has"
            raise InputError(
                f"store {store.path} is shared by {other or f'run {path.name}'}, whose code differs "
                f"({which}): drivers that share a store compute with the same code: start them from one "
                "installation, or wait until that one ends"
            ) from None


def _written(path: Path) -> Driver | None:
    """The driver that a lease names, which its holder writes just after making it."""
    for _ in range(ATTEMPTS):
        if (driver := read_driver(path)) or not path.exists():
            return driver
        time.sleep(lease.BEAT / 10)
    return None


def _leases(store: Store) -> list[Path]:
    """Leases of drivers that share the store."""
    return sorted(path for path in _drivers(store).glob("*") if path.name[0] != ".")


@contextmanager
def _telling(store: Store) -> Iterator[None]:
    """Turn what a lease raises while it is taken into one clear message."""
    try:
        yield
    except HeldError as error:
        raise _driven(store, error.holder) from None
    except OSError as error:
        raise StoreError(f"store {store.path} cannot be written: {error.strerror}") from error


def _driven(store: Store, holder: Driver | None) -> InputError:
    remedy = "wait until it ends, stop it, or use another store"
    if holder and holder.job and not holder.is_here:
        files = f"{_lease(store)} or {_drivers(store) / holder.run}"
        remedy += f"; if its batch system cannot be asked from here and it has ended, remove {files}"
    return InputError(f"store {store.path} is driven by {holder or 'another run'}: {remedy}")


def _lock(store: Store, stack: ExitStack, kind: int) -> None:
    """Take the operating system's lock, where there is one; tries a few times."""
    try:
        handle = os.open(store.inside(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"store {store.path} cannot be written: {error.strerror}") from error
    stack.callback(os.close, handle)
    try:
        for _ in range(ATTEMPTS):
            if flocked(handle, kind):
                return
            time.sleep(0.05)
    except OSError as error:
        raise StoreError(
            f"store {store.path} cannot be locked: {error.strerror}; ask for the mount option `flock` "
            "(Lustre) or a running lock service (NFS), or use another file system"
        ) from error
    raise _driven(store, current_driver(store))

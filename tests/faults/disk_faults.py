"""A store that is full, read-only, gone, or answers with errors, in the middle of a run."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_campaign import Campaign
from strikes import Order
from verdict import judge
from zygote import Started

WRITING = {
    "no space left (ENOSPC)": errno.ENOSPC,
    "quota reached (EDQUOT)": errno.EDQUOT,
    "file system read-only (EROFS)": errno.EROFS,
    "I/O error (EIO)": errno.EIO,
    "stale handle (ESTALE)": errno.ESTALE,
    "no permission (EACCES)": errno.EACCES,
}
READING = {
    "I/O error (EIO)": errno.EIO,
    "stale handle (ESTALE)": errno.ESTALE,
    "no permission (EACCES)": errno.EACCES,
}
LOCKING = {"no locks (ENOLCK)": errno.ENOLCK, "no locks (ENOSYS)": errno.ENOSYS}

REFUSALS = (
    "make room and run the same command again|cannot write|cannot be written|cannot be read|cannot be listed|"
    "cannot be locked"
)

RDONLY, REMOUNT, DETACH = 1, 32, 2


def errors(campaign: Campaign) -> str:
    """One error in each of three runs: the run goes on, or ends and says which."""
    choice = campaign.choice
    for _ in range(3):
        place = choice.choice(("draft", "write", "flush", "commit", "published", "read", "read"))
        kind, code = choice.choice(list((READING if place == "read" else WRITING).items()))
        campaign.order(kind, "error", place, code=code, after=choice.randrange(8))
        campaign.run()
        campaign.withdraw()
    return REFUSALS


def bookkeeping(campaign: Campaign) -> str:
    """Errors with the driver's own files: log, manifest, lease, mark."""
    choice = campaign.choice
    for _ in range(2):
        kind, code = choice.choice(list(WRITING.items()))
        campaign.order(kind, "error", "notes", code=code, after=choice.randrange(6))
        campaign.run()
        campaign.withdraw()
    return REFUSALS


def locks(campaign: Campaign) -> str:
    """A file system without locks, for driver and checkpoints."""
    kind, code = campaign.choice.choice(list(LOCKING.items()))
    campaign.order(kind, "error", "lock", code=code, times=-1, match="faultstore")
    ended = campaign.run()
    assert ended.status in (0, None), ended
    return ""


def full(campaign: Campaign) -> str:
    """A small file system fills up; then it is made larger."""
    with small_disk(campaign.store.parent, campaign.choice.randrange(64, 300, 4)) as mount:
        ended = campaign.run()
        assert ended.status in (0, 1, 2, None), ended
        if ended.status:
            campaign.note("full disk (tmpfs)", "compute and commit")
        mount(REMOUNT, "size=100m")
        return finished(campaign)


def finished(campaign: Campaign) -> str:
    """Judged while the file system is still there."""
    campaign.verdict = judge(campaign, REFUSALS)
    return REFUSALS


def read_only(campaign: Campaign) -> str:
    """The file system is read-only when a run begins, and is mended."""
    with small_disk(campaign.store.parent, 100_000) as mount:
        kill_driver(campaign)
        mount(REMOUNT | RDONLY, "size=100m")
        campaign.note("file system read-only (tmpfs)", "start and end")
        ended = campaign.run()
        assert ended.status == 2, ended
        mount(REMOUNT, "size=100m")
        return finished(campaign)


def kill_driver(campaign: Campaign) -> None:
    """Leave something to do."""
    after = campaign.choice.randrange(5, 30)
    campaign.order("SIGKILL of the driver", "kill", "commit", after=after, target="driver")
    campaign.run()
    campaign.withdraw()


def vanished(campaign: Campaign) -> str:
    """The store is away in the middle of a run, and comes back before the next."""
    away = campaign.store.with_name("away")
    order = waiting_order(campaign, "store vanishes")
    campaign.run(once_struck(campaign, order, lambda: campaign.store.rename(away)))
    if away.exists():
        if campaign.store.exists():
            assert not any(path.is_file() for path in campaign.store.rglob("*")), sorted(
                campaign.store.rglob("*")
            )
            campaign.store.rename(campaign.store.with_name("remains"))
        away.rename(campaign.store)
    return REFUSALS


def waiting_order(campaign: Campaign, kind: str, **details: str) -> Order:
    where = campaign.choice.choice(("compute", "draft", "write", "flush", "commit", "published", "read"))
    return campaign.order(kind, "wait", where, after=campaign.choice.randrange(10), **details)


def once_struck(campaign: Campaign, order: Order, act: Callable[[], object]) -> Callable[[Started], None]:
    """Does something as soon as a process waits for it, and lets the process go on."""
    leave = campaign.orders / f"{order.name}.go"

    def during(driver: Started) -> None:
        if not leave.exists() and any(strike.get("name") == order.name for strike in campaign.strikes()):
            act()
            leave.touch()

    return during


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[int, str], None]]:
    """A file system in memory at a folder; skips where this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(flags: int, options: str) -> None:
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options.encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    try:
        mount(0, f"size={kilobytes}k")
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error.strerror}")
    try:
        yield mount
    finally:
        libc.umount2(os.fsencode(folder), DETACH)


CASES = {errors: 8, bookkeeping: 4, locks: 2, full: 3, read_only: 2, vanished: 3}
"""How often each is done in the long form."""

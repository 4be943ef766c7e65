"""Faults of the file system itself, answered by a pass-through that orders tell what to answer."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from disk_faults import LOCKING, REFUSALS, kill_driver, once_struck, waiting_order
from fault_campaign import Campaign
from passthrough import unmount

OPERATIONS = ("lookup", "getattr", "open", "read", "create", "write", "fsync", "link", "mkdir", "unlink")
CHANGING = ("create", "write", "mkdir", "link", "rename", "unlink", "rmdir", "setattr")
CHUNK = ".zarr.zip"


@contextmanager
def mounted(campaign: Campaign) -> Iterator[None]:
    """The campaign's store behind the pass-through, and afterwards where it really lies."""
    source, target = campaign.folder / "source", campaign.folder / "disk"
    for folder in (source, target):
        folder.mkdir(parents=True, exist_ok=True)
    serve(campaign, source, target)
    campaign.below = source / campaign.store.name
    try:
        yield
    finally:
        unmount(target)
        campaign.store = campaign.below


def serve(campaign: Campaign, source: Path, target: Path) -> None:
    """Mount, or skip where that is not allowed."""
    sign = campaign.folder / "mounted"
    sign.unlink(missing_ok=True)
    arguments = [str(source), str(target)]
    surroundings = campaign.surroundings
    server = campaign.zygote.start("passthrough:main", arguments, campaign.folder / "output", **surroundings)
    campaign.leaders.append(server.pid)
    while not sign.exists():
        if server.wait(0.02) is not None:
            pytest.skip(f"no file system can be mounted here: {server.errors.read_text()[-200:]}")


def order(campaign: Campaign, kind: str, act: str, operation: str, **details: Any) -> None:
    about = {"store": str(campaign.below), "match": "faultstore", **details}
    campaign.order(kind, act, f"fuse {operation}", **about)


def errors(campaign: Campaign) -> str:
    """Errors of single operations, two in each of two runs."""
    choice = campaign.choice
    with mounted(campaign):
        for _ in range(2):
            for operation in choice.sample(OPERATIONS, 2):
                code = choice.choice((errno.EIO, errno.EIO, errno.ESTALE, errno.ENOSPC))
                if operation in ("lookup", "getattr", "open", "read") and code == errno.ENOSPC:
                    code = errno.EIO
                kind = {5: "I/O error (EIO)", 116: "stale handle (ESTALE)", 28: "no space left (ENOSPC)"}[
                    code
                ]
                after = choice.randrange({"lookup": 150, "getattr": 100, "mkdir": 8}.get(operation, 25))
                order(campaign, f"{kind}, FUSE", "error", operation, code=code, after=after)
            campaign.run()
            campaign.withdraw()
    return REFUSALS


def zeros(campaign: Campaign) -> str:
    """Reads of chunks that give zeros, once: taken for damage, and computed again."""
    with mounted(campaign):
        kill_driver(campaign)
        for after in campaign.choice.sample(range(12), 3):
            order(campaign, "read gives zeros, FUSE", "zeros", "read", match=CHUNK, after=after)
        campaign.run()
        campaign.withdraw()
        forgive(campaign)
    return REFUSALS


def late(campaign: Campaign) -> str:
    """Names and sizes of committed chunks that a client does not see yet."""
    with mounted(campaign):
        kill_driver(campaign)
        for after in campaign.choice.sample(range(30), 2):
            missing = {"match": CHUNK, "after": after, "code": errno.ENOENT}
            order(campaign, "name not seen yet, FUSE", "error", "lookup", **missing)
            operation = campaign.choice.choice(("lookup", "getattr"))
            order(campaign, "size not seen yet, FUSE", "late size", operation, match=CHUNK, after=after + 30)
        campaign.run()
        campaign.withdraw()
        forgive(campaign)
    return REFUSALS


def forgive(campaign: Campaign) -> None:
    """What was struck is damaged as far as the engine can see: it may compute it again."""
    for strike in campaign.strikes():
        if "FUSE" in strike["kind"]:
            campaign.spoiled.add(Path(strike["what"]).name)


def locks(campaign: Campaign) -> str:
    """No locks at all, as Lustre without its mount option and NFS without its service."""
    kind, code = campaign.choice.choice(list(LOCKING.items()))
    with mounted(campaign):
        order(campaign, f"{kind}, FUSE", "error", "lock", code=code, times=-1)
        ended = campaign.run()
        assert ended.status in (0, None), ended
    return ""


def read_only(campaign: Campaign) -> str:
    """Read-only from the middle of a run on."""
    with mounted(campaign):
        sign = waiting_order(campaign, "file system becomes read-only, FUSE", store=str(campaign.below))

        def change() -> None:
            for operation in CHANGING:
                order(campaign, "(read-only)", "error", operation, code=errno.EROFS, times=-1)

        campaign.run(once_struck(campaign, sign, change))
        campaign.withdraw()
    return REFUSALS


def vanished(campaign: Campaign) -> str:
    """Unmounted in the middle of a run: nothing is written to the folder below."""
    with mounted(campaign):
        target = campaign.folder / "disk"
        sign = waiting_order(campaign, "file system unmounted, FUSE", store=str(campaign.below))
        campaign.run(once_struck(campaign, sign, lambda: unmount(target)))
        assert not any(path.is_file() for path in target.rglob("*")), list(target.rglob("*"))
    return REFUSALS


CASES = {errors: 5, zeros: 3, late: 3, locks: 1, read_only: 2, vanished: 2}
"""How often each is done in the long form."""

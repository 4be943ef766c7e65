"""Damage of committed chunks: flipped bytes, pages of zeros, torn, purged and swapped files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from fault_campaign import Campaign
from verdict import differences

from pipeline import Store, verify


def flip(file: Path, other: Path, choice: Random) -> None:
    content = bytearray(file.read_bytes())
    content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
    file.write_bytes(content)


def zeros(file: Path, other: Path, choice: Random) -> None:
    """A page, from anywhere on, as a file system gives that lost its caches."""
    content = bytearray(file.read_bytes())
    begin = choice.randrange(len(content)) // 512 * 512
    length = min(4096, len(content) - begin)
    content[begin : begin + length] = bytes(length)
    file.write_bytes(content)


def tear(file: Path, other: Path, choice: Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: choice.randrange(len(content))])


def purge(file: Path, other: Path, choice: Random) -> None:
    file.unlink()


def empty(file: Path, other: Path, choice: Random) -> None:
    file.write_bytes(b"")


def swap(file: Path, other: Path, choice: Random) -> None:
    aside = file.with_name("aside")
    file.rename(aside)
    other.rename(file)
    aside.rename(other)


def copy(file: Path, other: Path, choice: Random) -> None:
    shutil.copyfile(other, file)


KINDS: dict[str, Callable[[Path, Path, Random], None]] = {
    "flipped bit": flip,
    "page of zeros": zeros,
    "torn file": tear,
    "purged file": purge,
    "emptied file": empty,
    "two chunks swapped": swap,
    "one chunk over another": copy,
}


def damaged_and_read(campaign: Campaign) -> str:
    """Damaged before a run that reads them: it computes them again."""
    campaign.order("SIGKILL of the driver", "kill", "compute", match="mean", target="driver")
    campaign.run()
    campaign.withdraw()
    for stage in campaign.choice.sample(["loops", "loops", "space", "space"], 3):
        damage(campaign, stage, "read by the next run")
    ended = campaign.run()
    assert ended.status in (0, None), ended
    return ""


def damaged_and_verified(campaign: Campaign) -> str:
    """Damaged in a store that is complete: after `verify --remove`, all that is left is right."""
    campaign.run()
    for stage in ("field", "loops", "space", "first", "steps"):
        damage(campaign, stage, "in a complete store")
    verify(Store(campaign.store), remove=True)
    left = differences(campaign.store, set(), complete=False)
    assert not left, left
    return ""


OWN = [
    ".tmp",
    ".runs",
    ".workflows",
    ".checkpoints",
    ".claims",
    ".drivers",
    ".damaged",
    ".incoming",
    ".lease",
    ".lock",
]


def linked(campaign: Campaign) -> str:
    """Entries, stages and chunks become links: refused by name, with nothing changed behind them."""
    campaign.order("SIGKILL of the driver", "kill", "compute", match="mean", target="driver")
    campaign.run()
    campaign.withdraw()
    chunks = [str(path.relative_to(campaign.store)) for path in campaign.store.glob("loops/*/*")]
    for name in (*campaign.choice.sample(OWN, 2), "loops", campaign.choice.choice(sorted(chunks))):
        place, behind = campaign.store / name, campaign.folder / "behind"
        aside = campaign.folder / "aside"
        if place.exists():
            place.rename(aside)
            (shutil.copytree if aside.is_dir() else shutil.copyfile)(aside, behind)
        else:
            behind.mkdir()
        place.symlink_to(behind)
        before = {path: path.stat() for path in (behind, *behind.rglob("*")) if path.is_file()}
        campaign.note("link elsewhere", "in an incomplete store", name)
        ended = campaign.run()
        assert ended.status == 2 and f"{place} is a link to {behind}" in ended.errors, ended
        assert {path: path.stat() for path in (behind, *behind.rglob("*")) if path.is_file()} == before
        place.unlink()
        shutil.rmtree(behind) if behind.is_dir() else behind.unlink()
        if aside.exists():
            aside.rename(place)
    return "is a link to"


def damage(campaign: Campaign, stage: str, place: str, kind: str = "") -> None:
    """Damage one chunk of a stage that is whole so far, or two of them; in any way if no kind is given."""
    choice = campaign.choice
    chunks = sorted((campaign.store / stage).glob("*/*"))
    chunk, other = choice.sample([path for path in chunks if path.name not in campaign.spoiled], 2)
    kind = kind or choice.choice(list(KINDS))
    files = [path for path in chunk.rglob("*") if path.is_file()] if chunk.is_dir() else [chunk]
    file = choice.choice(sorted(files))
    content = file.read_bytes()
    KINDS[kind](file, other / file.relative_to(chunk) if chunk.is_dir() else other, choice)
    if not file.exists() or file.read_bytes() != content:
        campaign.spoiled |= {chunk.name} | ({other.name} if kind == "two chunks swapped" else set())
        campaign.note(kind, place, str(file.relative_to(campaign.store)))


CASES = {damaged_and_read: 9, damaged_and_verified: 7, linked: 4}

"""The verdict on a campaign that faults struck, by a check that shares no code with the engine's reading.

Numbers are read with Zarr alone and compared with closed forms, chunks that were committed when a fault
struck with those that are there in the end, executions with the times of the commits.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import fault_stages
import numpy as np
import zarr
from fault_campaign import Campaign
from strikes import committed
from zarr.storage import LocalStore, ZipStore

from pipeline import Store, verify

ATTEMPTS = 2
"""Undisturbed runs in which a campaign must become complete."""


class Verdict(StrEnum):
    """The outcome of a fault, from best to worst."""

    SURVIVED = "survived"
    REFUSED = "refused"
    """A documented exit code and an error that says what to do; the same command goes on later."""
    UNCLEAR = "unclear"
    """It ended without either."""
    LOST = "lost"
    """A committed chunk is gone, or was computed again, or the campaign cannot be completed any more."""
    WRONG = "wrong"
    HUNG = "hung"


def judge(campaign: Campaign, refusals: str = "") -> tuple[Verdict, str]:
    """Run the same command again until all is there, and compare.

    refusals: text, one of which (they are separated by `|`) explains an exit status that is not 0.
    """
    campaign.withdraw()
    ended = list(campaign.ended)
    if any(run.status is None for run in ended):
        return Verdict.HUNG, "\n".join(run.output + run.errors for run in ended)
    if found := differences(campaign.store, campaign.spoiled, complete=False):
        return Verdict.WRONG, found
    struck_at = [set(strike["committed"]) for strike in campaign.strikes()]
    for _ in range(ATTEMPTS):
        last = campaign.run()
        if last.status in (None, 0):
            break
    if last.status is None:
        return Verdict.HUNG, last.output + last.errors
    if last.status:
        return Verdict.LOST, f"cannot be completed: {last.output}{last.errors}"
    if found := differences(campaign.store, set(), complete=True):
        return Verdict.WRONG, found
    if gone := set().union(*struck_at) - set(committed(str(campaign.store))) - campaign.spoiled:
        return Verdict.LOST, f"committed before a fault, gone after it: {sorted(gone)}"
    if again := computed_again(campaign):
        return Verdict.LOST, again
    if left := leavings(campaign.store):
        return Verdict.LOST, left
    return _manner(ended, refusals)


def _manner(ended: list[Any], refusals: str) -> tuple[Verdict, str]:
    """How the disturbed runs ended: with work done, or with an error; and if that was clear."""
    refused = False
    for run in ended:
        text = run.output + run.errors
        if "Traceback" in text:
            return Verdict.UNCLEAR, text
        if run.status is not None and run.status > 0:
            refused = True
            if run.status not in (1, 2, 3) or not any(part and part in text for part in refusals.split("|")):
                return Verdict.UNCLEAR, f"exit status {run.status}: {text}"
    return (Verdict.REFUSED if refused else Verdict.SURVIVED), ""


def differences(store: Path, spoiled: set[str], *, complete: bool) -> str:
    """The first chunk with other numbers than plain NumPy's; if `complete`, also one that is missing."""
    wanted = fault_stages.expected()
    found = set()
    for path in chunk_paths(store):
        if path.name in spoiled:
            continue
        try:
            record, arrays = numbers(path)
        except Exception as error:
            return f"{path} cannot be read: {type(error).__name__}: {error}"
        about = (record["stage"], fault_stages.place_of(**record["coordinates"]))
        found.add(about)
        if record["key"] != path.name.removesuffix(".zarr.zip"):
            return f"{path}: its record is that of {record['key']}"
        if about not in wanted or arrays.keys() != wanted[about].keys():
            return f"{path}: {about} is not wanted"
        for name, array in arrays.items():
            if not np.array_equal(array, wanted[about][name]):
                return f"{path}: {name} of {about} differs: {array} instead of {wanted[about][name]}"
    missing = wanted.keys() - found
    return f"missing although exit status 0: {sorted(missing)}" if complete and missing else ""


def chunk_paths(store: Path) -> list[Path]:
    """Files and folders of all committed chunks."""
    shelves = store.glob("[a-z]*/[0-9a-f][0-9a-f][0-9a-f]")
    return sorted(path for shelf in shelves for path in shelf.iterdir())


def numbers(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Record and arrays of a chunk, by Zarr alone."""
    storage = LocalStore(path, read_only=True) if path.is_dir() else ZipStore(path, mode="r")
    group = zarr.open_group(storage, mode="r")
    arrays = {name: np.asarray(array[...]) for name, array in group.arrays()}  # type: ignore[index]
    record = dict(group.attrs)
    storage.close()
    return record, arrays


def computed_again(campaign: Campaign) -> str:
    """The first chunk that was computed after it had been committed, unless a fault had spoiled it."""
    finished = {}
    for path in chunk_paths(campaign.store):
        if path.name not in campaign.spoiled:
            record, _ = numbers(path)
            place = (record["stage"], fault_stages.place_of(**record["coordinates"]))
            finished[place] = datetime.fromisoformat(str(record["finished"])).timestamp()
    for line in fault_stages.executions(campaign.log):
        place = (line["stage"], fault_stages.place_of(**line["at"]))
        if place in finished and line["time"] > finished[place] + campaign.tolerance:
            return f"{place} was computed again"
    return ""


def leavings(store: Path) -> str:
    """What a complete run should not have left: drafts, checkpoints, leases, damage."""
    left = [*(store / ".tmp").glob("*"), *store.glob(".lease*"), *(store / ".checkpoints").glob("*/*")]
    if left:
        return f"left behind: {[str(path.relative_to(store)) for path in left]}"
    found = verify(Store(store))
    return "" if not found.damaged and not found.unreadable else str(found)

"""Plans of workflows, parameter files, histories of runs, a ledger: all that a store has beside chunks.

Checkpoints, lists of jobs, budgets and locks belong to the campaign where they lie, and stay there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import product
from typing import Any

from pipeline.declare.coordinates import natural_order
from pipeline.declare.text import counted
from pipeline.planning.history import bring_past_plans
from pipeline.planning.manifest import PART, Manifest, NodeRecord
from pipeline.planning.manifest_files import keep_former
from pipeline.running.event_log import LOG, TALLY, runs
from pipeline.store.durable import flush, write_atomically
from pipeline.store.errors import StoreError
from pipeline.store.ledger import ORIGIN, Ledger, LedgerEvent
from pipeline.store.lock import current_driver, driver_lock
from pipeline.store.plain_files import text_of
from pipeline.store.record import canonical_json
from pipeline.store.store import Store
from stages.base.atomic import replacing
from stages.base.errors import InputError

_OF_CHUNKS = ("blocks", "keys", "files")


def bring_belongings(source: Store, target: Store, origin: str | None = None) -> list[str]:
    """Bring what people read beside the chunks; returns lines on what became of it.

    origin: the source's name for people, if it is not its folder's.
    """
    origin = origin or str(source.path)
    with target.writing("plans and histories of another store"):
        notes = _bring_plans_between_runs(source, target)
        _bring_parameter_files(source, target)
        bring_past_plans(source, target)
        histories = sum(_bring_run(source, target, run) for run in runs(source))
        entries = _bring_ledger(source, target, origin)
    if histories:
        notes.append(f"{counted(histories, 'run')} of {origin} added to the history")
    if entries:
        notes.append(f"{counted(entries, 'job')} of {origin} added to the ledger")
    return notes


def _bring_plans_between_runs(source: Store, target: Store) -> list[str]:
    """Bring plans unless a run is at work, which might write its own meanwhile."""
    if not any((source.path / ".workflows").glob("[!.]*.json")):
        return []
    try:
        with driver_lock(target, "transfer"):
            return list(_bring_plans(source, target))
    except StoreError:
        raise
    except InputError:
        driver = current_driver(target) or "a run"
        return [f"{driver} is at work: its plan names the results; the same command later adds what came"]


def _bring_plans(source: Store, target: Store) -> Iterator[str]:
    """Plans name chunks for people: the target's own is kept, and made to name what both have."""
    for path in sorted((source.path / ".workflows").glob("[!.]*.json")):
        name = path.stem
        theirs, ours = Manifest.read(source, name), Manifest.read(target, name)
        if theirs is None or name.endswith(PART):
            continue
        place = target.path / ".workflows" / path.name
        if ours is None:
            write_atomically(place, path.read_text())
        elif (text := united(place.read_bytes(), path.read_bytes())) is None:
            if theirs.file and theirs.file != ours.file:
                keep_former(target, theirs, path.read_text())
            yield f"{name}: plans differ in more than coordinates; that of the target names results"
        elif text != place.read_text():
            write_atomically(place, text)
            yield f"{name}: results are of both stores; averages of them by quarkline run"


def _bring_parameter_files(source: Store, target: Store) -> None:
    """Each text once, under its workflow's name; a second one has a part of its digest in its name."""
    for path in sorted((source.path / ".workflows").glob("[!.]*.yaml")):
        text = text_of(path)
        held = {"", *map(text_of, (target.path / ".workflows").glob("*.yaml"))}
        if text not in held:
            place = target.path / ".workflows" / path.name
            if place.exists():
                digest = sha256(text.encode()).hexdigest()[:8]
                place = place.with_name(f"{path.stem}-{digest}.yaml")
            write_atomically(place, text)


def _bring_run(source: Store, target: Store, run: str) -> bool:
    """Bring the log of a run, or more of it than there was before; never a list of jobs."""
    theirs, ours = (store.inside(".runs", run) for store in (source, target))
    if (ours / LOG).exists() and (ours / LOG).stat().st_size >= (theirs / LOG).stat().st_size:
        return False
    ours.mkdir(exist_ok=True)
    for name in (LOG, TALLY):
        if (theirs / name).is_file():
            with (theirs / name).open("rb") as log, replacing(ours / name) as copy:
                shutil.copyfileobj(log, copy)
    flush(ours)
    return True


def _bring_ledger(source: Store, target: Store, origin: str) -> int:
    """Append what ended jobs cost; who else submits, and with what budget, is the target's own affair."""
    ledger = Ledger(target)
    held = {_identity(entry) for entry in ledger.contents()}
    added = 0
    for entry in Ledger(source).contents():
        if entry["event"] == LedgerEvent.ENDED and _identity(entry) not in held:
            ledger.bring({ORIGIN: origin, **entry})
            added += 1
    return added


def _identity(entry: dict[str, object]) -> str:
    return json.dumps({name: value for name, value in entry.items() if name != ORIGIN}, sort_keys=True)


def united(ours: bytes, theirs: bytes) -> str | None:
    """The manifest that names the chunks of two manifests of one workflow; None where they do not fit.

    They fit if their nodes differ in coordinates alone, and these make a grid together. A node whose inputs
    grew, an average, is left out: that of all coordinates is computed by the next run. So is what the two
    say differently of all results, such as the number of configurations.
    """
    contents = json.loads(ours), json.loads(theirs)
    mine, yours = (Manifest.of("", text).nodes for text in (ours, theirs))
    shared = [name for name in mine if name in yours]
    if any(_described(mine[name]) != _described(yours[name]) for name in shared):
        return None
    if all(at in mine[name].chunks for name in shared for at in yours[name].chunks):
        return ours.decode()
    grown = {name for name in shared if mine[name].content["blocks"] != yours[name].content["blocks"]}
    nodes: dict[str, Any] = {}
    for name in dict.fromkeys([*mine, *yours]):
        if name not in shared or _differ(mine[name], yours[name]):
            if grown.isdisjoint((mine.get(name) or yours[name]).content["inputs"]):
                return None
            grown.add(name)
        elif (whole := _whole(mine[name], yours[name])) is None:
            return None
        else:
            nodes[name] = whole
    abouts = [content.get("about", {}) for content in contents]
    about = {name: value for name, value in abouts[0].items() if abouts[1].get(name) == value}
    return canonical_json({**contents[0], "nodes": nodes, "about": about}).decode()


def _differ(one: NodeRecord, other: NodeRecord) -> bool:
    """True if a chunk of the same coordinates has another key."""
    return any(one.chunks[at] != key for at, key in other.chunks.items() if at in one.chunks)


def _described(node: NodeRecord) -> dict[str, Any]:
    return {name: value for name, value in node.content.items() if name not in _OF_CHUNKS}


def _whole(one: NodeRecord, other: NodeRecord) -> dict[str, Any] | None:
    """A node on the coordinates of both; None where chunks of its grid are in neither."""
    blocks = [
        _merged(mine, yours)
        for mine, yours in zip(one.content["blocks"], other.content["blocks"], strict=True)
    ]
    if any(along is None for along in blocks):
        return None
    keys, files = [], dict[str, dict[Any, str]]()
    for place in product(*(along or [] for along in blocks)):
        at = tuple(zip(one.content["over"], place, strict=True))
        holder = one if at in one.chunks else other
        if at not in holder.chunks:
            return None
        keys.append(holder.chunks[at])
        for name, digest in holder.files(at).items():
            files.setdefault(name, {})[place[:1]] = digest
    digests = {name: list(by_block.values()) for name, by_block in files.items()}
    return {**one.content, "blocks": blocks, "keys": "".join(keys), "files": digests}


def _merged(mine: Iterable[Iterable[Any]], yours: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]] | None:
    """Blocks along a dimension, in order; None where a coordinate is in two different ones."""
    blocks = {tuple(block) for block in (*mine, *yours)}
    coordinates = [value for block in blocks for value in block]
    if len(set(coordinates)) < len(coordinates):
        return None
    return sorted(blocks, key=lambda block: natural_order(block[0]))

"""Chunks of stores in reach as files: linked or copied into another store, verified, published."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from dask.utils import format_bytes

from pipeline.planning.manifest import manifests
from pipeline.store.arrival import arrivals, whole_record
from pipeline.store.durable import delete
from pipeline.store.errors import StoreFullError
from pipeline.store.store import Store
from pipeline.transfer.belongings import bring_belongings
from pipeline.transfer.conflict import compared
from pipeline.transfer.offer import EVERYTHING, Chunk, Offer, Selection, offers_of
from pipeline.transfer.receipt import Listener, Receipt, shortened
from stages.base.errors import InputError

MOVERS = 4

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


@dataclass(frozen=True)
class Terms:
    """Terms on which chunks are brought.

    selection: which. keep_first: where stores differ in a chunk, take that of the store named first. links:
    hard links instead of copies, where the file system has them.
    """

    selection: Selection = EVERYTHING
    keep_first: bool = False
    links: bool = True


def receive(
    sources: Sequence[Store], target: Store, terms: Terms, listener: Listener | None = None
) -> Receipt:
    """Bring the chunks of stores into another one, with their plans, histories and ledgers.

    Nothing that is there is replaced, and the sources are only read. A transfer that was interrupted goes on.

    Raises:
        InputError: stores that lie in each other, chunks that differ between them, too little room, another
            transfer into the same store.
        StoreError: the target cannot be written.
    """
    refuse_entangled(sources, target)
    known = list(chain.from_iterable(map(manifests, sources)))
    offered: dict[Chunk, list[tuple[Store, Offer]]] = {}
    for source in sources:
        offers = terms.selection.of(offers_of(source), known)
        for offer in offers:
            offered.setdefault(offer.chunk, []).append((source, offer))
    stored = {(stage, key) for stage in target.stages() for key in target.keys(stage)}
    shared = {
        chunk: [*([target] if chunk in stored else []), *(source for source, _ in holders)]
        for chunk, holders in offered.items()
    }
    findings = compared((chunk, holders) for chunk, holders in shared.items() if len(holders) > 1)
    if findings.conflicts and not terms.keep_first:
        lines = "\n".join(shortened(findings.conflicts))
        raise InputError(
            f"chunks differ between the stores, and nothing was brought:\n{lines}\n"
            "where they are equal to rounding, computed on different devices, --keep-first takes that "
            " of the store named first; else find out which is right, and drop the other"
        )
    receipt = Receipt(str(target.path), present=len(stored.intersection(offered)))
    receipt.conflicts, receipt.damaged = findings.conflicts, findings.damaged
    missing = {chunk: holders for chunk, holders in offered.items() if chunk not in stored}
    target.create()
    with arrivals(target) as folder:
        _bring(missing, target, folder, terms.links, receipt, listener)
        for source in sources:
            receipt.notes += bring_belongings(source, target)
    return receipt


def refuse_entangled(sources: Sequence[Store], target: Store) -> None:
    """Raise InputError for a store that is named twice, or lies in another one."""
    places = [source.path.resolve() for source in sources]
    end = target.path.resolve()
    for number, place in enumerate(places):
        if place in places[:number]:
            raise InputError(f"store {place} is named twice: name each store once")
        if place == end:
            raise InputError(f"store {place} is both a source and the target: leave it out of the sources")
        if place in end.parents or end in place.parents:
            raise InputError(f"{end} and the store {place} lie in each other: choose another folder")


def _bring(
    missing: Mapping[Chunk, Sequence[tuple[Store, Offer]]],
    target: Store,
    folder: Path,
    links: bool,
    receipt: Receipt,
    listener: Listener | None,
) -> None:
    sizes = {chunk: holders[0][1].nbytes for chunk, holders in missing.items()}
    total, done = sum(sizes.values()), 0
    room = shutil.disk_usage(target.path).free
    linkable = links and all(_on_one_device(source, target) for source, _ in chain(*missing.values()))
    if total > room and not linkable:
        raise StoreFullError(
            f"store {target.path}: {format_bytes(total)} are to be brought, {format_bytes(room)} are free: "
            "make room, bring some stages by --stage, or what analysis needs by --results"
        )
    with ThreadPoolExecutor(MOVERS) as pool:
        for moved in pool.map(partial(_bring_one, target, folder, links), missing.values()):
            done += moved.nbytes
            receipt.damaged += moved.problems
            if moved.linked is not None:
                receipt.add(moved.stage, moved.nbytes, moved.linked)
            if listener:
                listener(done, total)


def _on_one_device(source: Store, target: Store) -> bool:
    return source.path.stat().st_dev == target.path.stat().st_dev


@dataclass(frozen=True)
class _Moved:
    stage: str
    nbytes: int
    linked: bool | None
    """None for a chunk that was not brought."""
    problems: Sequence[str]


def _bring_one(target: Store, folder: Path, links: bool, holders: Sequence[tuple[Store, Offer]]) -> _Moved:
    """Bring a chunk from the first store that has it whole."""
    problems = []
    for source, offer in holders:
        draft = folder / f"{offer.stage}-{offer.key}"
        delete(draft)
        with target.writing(str(offer)):
            try:
                linked = _draft(source.path / offer.place, draft, links)
                whole_record(draft, *offer.chunk)
                target.publish(offer.stage, offer.key, draft)
                return _Moved(offer.stage, offer.nbytes, linked, ())
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                problems.append(f"{offer} in {source.path}: {error}")
            except _SourceError as error:
                problems.append(f"{offer} in {source.path}: {error}")
            finally:
                delete(draft)
    return _Moved(holders[0][1].stage, holders[0][1].nbytes, None, problems)


class _SourceError(Exception):
    """A chunk that its own store does not give."""


def _draft(path: Path, draft: Path, links: bool) -> bool:
    """Make a draft of a chunk's file or folder; True if no byte had to be copied."""
    if not path.is_dir():
        return _link_or_copy(path, draft, links)
    draft.mkdir()
    linked = True
    for file in _files(path):
        place = draft / file.relative_to(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        linked &= _link_or_copy(file, place, links)
    return linked


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _link_or_copy(path: Path, draft: Path, links: bool) -> bool:
    if links:
        try:
            os.link(path, draft)
            return True
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
    with suppress(FileNotFoundError):
        draft.unlink()
    try:
        source = path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _SourceError(f"cannot be read: {error.strerror or error}") from error
    with source, draft.open("xb") as copy:
        shutil.copyfileobj(source, copy, 1 << 22)
    return False

"""Chunks of other stores, brought into one of this machine: in batches, each compared with its digests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from pipeline.declare.text import format_bytes
from pipeline.planning.manifest_files import manifests
from pipeline.store.arrival import arrivals, whole_record
from pipeline.store.durable import delete
from pipeline.store.errors import StoreFullError
from pipeline.store.record import RECORD
from pipeline.store.shelves import ChunkId
from pipeline.store.store import Store
from pipeline.transfer.belongings import bring_belongings
from pipeline.transfer.bucket import RemoteStore
from pipeline.transfer.folder import Folder
from pipeline.transfer.offer import EVERYTHING, Offer, Selection, offers_in, offers_of
from pipeline.transfer.receipt import Listener, Receipt, shortened
from stages.base.errors import InputError

LINKED = ".linked"
"""Folder of arrivals for drafts that may be names of another store's files: none is ever written into."""

BATCH_BYTES = 256 << 20
BATCH_CHUNKS = 2000
"""Limits of what is brought before it is verified and published: what an interruption leaves unpublished."""

CHECKERS = 4


def receive(
    sources: Sequence[Store],
    target: Store,
    selection: Selection = EVERYTHING,
    listener: Listener | None = None,
    *,
    keep_first: bool = False,
    links: bool = True,
) -> Receipt:
    """Bring the chunks of stores into another one, with their plans, histories and ledgers.

    Nothing that is there is replaced, and the sources are only read. A transfer that was interrupted goes on.
    keep_first: where stores differ in a chunk, take that of the store named first. links: hard links instead
    of copies, where the file system has them.

    Raises:
        InputError: stores that lie in each other, chunks that differ between them, too little room, another
            transfer into the same store.
        StoreError: the target cannot be written.
    """
    _refuse_entangled(sources, target)
    known = list(chain.from_iterable(map(manifests, sources)))
    offers = [(source, selection.of(offers_of(source), known)) for source in sources]
    stored = target.chunks()
    if selection.separation:
        present = (Offer(*chunk, "", 0) for chunk in stored)
        selection.separation.check(dict(offers), target, present)
    holders: dict[ChunkId, list[Store]] = {}
    for source, offer in ((source, offer) for source, some in offers for offer in some):
        holders.setdefault(offer.chunk, [target] if offer.chunk in stored else []).append(source)
    conflicts, damaged = _compared((chunk, stores) for chunk, stores in holders.items() if len(stores) > 1)
    if conflicts and not keep_first:
        lines = "\n".join(shortened(conflicts))
        raise InputError(
            f"chunks differ between the stores, and nothing was brought:\n{lines}\n"
            "where they are equal to rounding, computed on different devices, --keep-first takes that "
            "of the store named first; else find out which is right, and drop the other"
        )
    folders: dict[Folder | RemoteStore, list[Offer]] = {
        Folder(source, target, links): some for source, some in offers
    }
    with _brought(folders, target, listener) as receipt:
        receipt.conflicts, receipt.damaged = conflicts, [*damaged, *receipt.damaged]
        receipt.notes = [note for source in sources for note in bring_belongings(source, target)]
    return receipt


def pull(
    source: RemoteStore, target: Store, selection: Selection = EVERYTHING, listener: Listener | None = None
) -> Receipt:
    """Bring chunks that a store here does not hold from one elsewhere, with plans and histories.

    Chunks that both hold are not compared. A transfer that was interrupted goes on, also within a chunk of
    many files.

    Raises:
        InputError: no connection, no store there, one of another format; another transfer is at work here;
            chunks that the selection keeps apart.
        StoreError: the store here cannot be written, or has too little room.
    """
    if not source.has_store():
        raise InputError(f"there is no store at {source.place}")
    with tempfile.TemporaryDirectory() as folder:
        source.bring_about(Path(folder))
        about = Store(folder)
        offers = selection.of(offers_in(source.files()), manifests(about))
        if selection.separation:
            selection.separation.check({source: offers}, target, offers_of(target))
        with _brought({source: offers}, target, listener) as receipt:
            receipt.notes = bring_belongings(about, target, source.place)
    return receipt


def _refuse_entangled(sources: Sequence[Store], target: Store) -> None:
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


def _compared(shared: Iterable[tuple[ChunkId, Sequence[Store]]]) -> tuple[list[str], list[str]]:
    """Sentences on chunks that differ between stores, and on those that cannot be compared.

    Compared are the digests of their arrays.
    """
    pairs = ((chunk, first, other) for chunk, (first, *others) in shared for other in others)
    conflicts, damaged = [], []
    with ThreadPoolExecutor(CHECKERS) as pool:
        for found in pool.map(_compare, pairs):
            if isinstance(found, InputError):
                damaged.append(str(found))
            elif found:
                conflicts.append(found)
    return conflicts, damaged


def _compare(pair: tuple[ChunkId, Store, Store]) -> str | InputError:
    chunk, first, other = pair
    try:
        same = _same_bytes(first.location(*chunk), other.location(*chunk))
        return "" if same else _difference(chunk, first, other)
    except InputError as error:
        return error


def _same_bytes(one: Path, other: Path) -> bool:
    """True for chunks of the same content by their records, which hold the sums of all else."""
    try:
        paths = [path / RECORD if path.is_dir() else path for path in (one, other)]
        return os.path.samefile(*paths) or paths[0].read_bytes() == paths[1].read_bytes()
    except OSError:
        return False


def _difference(chunk: ChunkId, first: Store, other: Store) -> str:
    """A sentence on what differs, '' where the arrays are the same and only their records differ."""
    records = [store.record(*chunk) for store in (first, other)]
    arrays = [{name: about["digest"] for name, about in record["arrays"].items()} for record in records]
    if arrays[0] == arrays[1]:
        return ""
    names = sorted(name for name in {*arrays[0], *arrays[1]} if arrays[0].get(name) != arrays[1].get(name))
    made = [
        f"{store.path} ({record.get('device', '?')})"
        for store, record in zip((first, other), records, strict=True)
    ]
    size = _largest_difference(chunk, names, first, other)
    return f"{chunk[0]}/{chunk[1][:12]}: {', '.join(names)} in {made[0]} and {made[1]} differ by {size}"


def _largest_difference(chunk: ChunkId, names: Sequence[str], first: Store, other: Store) -> str:
    arrays, others = first.load(*chunk), other.load(*chunk)
    largest = 0.0
    for name in names:
        if name not in arrays or name not in others or arrays[name].shape != others[name].shape:
            return "their shapes"
        scale = float(np.max(np.abs(arrays[name]), initial=0.0)) or 1.0
        largest = max(largest, float(np.max(np.abs(arrays[name] - others[name]), initial=0.0)) / scale)
    return f"at most {largest:.1e} of the largest number"


@contextmanager
def _brought(
    offers: Mapping[Folder | RemoteStore, Sequence[Offer]], target: Store, listener: Listener | None
) -> Iterator[Receipt]:
    """Bring what the target lacks, each chunk from the first store that has it whole.

    In the block, what lies beside them is brought; another transfer has to wait until it ends.
    """
    stored = target.chunks()
    sizes = {offer.chunk: offer.nbytes for offer in reversed([*chain(*offers.values())])}
    receipt = Receipt(str(target.path), present=len(stored & sizes.keys()))
    wanted = sum(nbytes for chunk, nbytes in sizes.items() if chunk not in stored)
    target.create()
    lacking = [source for source, some in offers.items() if any(each.chunk not in stored for each in some)]
    if any(not isinstance(source, Folder) or source.takes_room for source in lacking):
        refuse_without_room(f"store {target.path}", wanted, shutil.disk_usage(target.path).free)
    came = progress(wanted, listener)
    problems: list[str] = []
    with arrivals(target) as folder, ThreadPoolExecutor(CHECKERS) as pool:
        for source, some in offers.items():
            if isinstance(source, Folder):
                where, drafts = f"in {source.store.path}", folder / LINKED
            else:
                where, drafts = f"of {source.place}", folder
            for batch in batches([offer for offer in some if offer.chunk not in stored]):
                unread = source.bring(batch, drafts, came)
                for offer, end in zip(batch, pool.map(partial(_publish, target, drafts), batch), strict=True):
                    if isinstance(end, Exception):
                        reason = unread.get(offer.place, end)
                        problems.append(f"{offer} {where}: {reason}")
                    else:
                        stored.add(offer.chunk)
                        receipt.add(offer.stage, offer.nbytes, linked=end)
        receipt.damaged = problems
        yield receipt


def _publish(target: Store, drafts: Path, offer: Offer) -> bool | Exception:
    """Publish a draft, which is removed in any case; whether it is linked, or why it is not whole."""
    draft = drafts / offer.place
    with target.writing(str(offer)):
        try:
            whole_record(draft, *offer.chunk)
            linked = all(file.stat().st_nlink > 1 for file in (draft, *draft.rglob("*")) if file.is_file())
            target.publish(*offer.chunk, draft)
            return linked
        except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
            return error
        finally:
            delete(draft)


def refuse_without_room(
    store: str, wanted: int, free: int, words: tuple[str, str, str] = ("brought", "", "bring")
) -> None:
    """Raise StoreFullError where more bytes are wanted than are free; words: what is done with chunks."""
    if wanted > free:
        past, there, do = words
        raise StoreFullError(
            f"{store}: {format_bytes(wanted)} are to be {past}, {format_bytes(free)} are free{there}: "
            f"make room, {do} some stages by --stage, or what analysis needs by --results"
        )


def progress(total: int, listener: Listener | None) -> Callable[[int], None]:
    """A counter of bytes that came, which tells a listener."""
    done = 0

    def came(nbytes: int) -> None:
        nonlocal done
        done = min(total, done + nbytes)
        if listener:
            listener(done, total)

    return came


def batches(offers: Iterable[Offer]) -> Iterator[list[Offer]]:
    """Chunks in batches that are limited in number and bytes; a larger chunk is one by itself."""
    batch: list[Offer] = []
    nbytes = 0
    for offer in offers:
        if batch and (len(batch) == BATCH_CHUNKS or nbytes + offer.nbytes > BATCH_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(offer)
        nbytes += offer.nbytes
    if batch:
        yield batch

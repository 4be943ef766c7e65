"""Bringing a store, or a part of it, from another machine: in batches, each verified and published."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dask.utils import format_bytes

from pipeline.planning.manifest import manifests
from pipeline.store.arrival import arrivals, whole_record
from pipeline.store.durable import delete
from pipeline.store.errors import StoreFullError
from pipeline.store.store import Store
from pipeline.transfer.belongings import bring_belongings
from pipeline.transfer.elsewhere import Elsewhere
from pipeline.transfer.offer import EVERYTHING, Offer, Selection, offers_in
from pipeline.transfer.receipt import Listener, Receipt
from stages.base.errors import InputError

BATCH_BYTES = 256 << 20
BATCH_CHUNKS = 2000
"""Limits of what is brought before it is verified and published: what an interruption leaves unpublished."""

CHECKERS = 4


def pull(
    host: Elsewhere, target: Store, selection: Selection = EVERYTHING, listener: Listener | None = None
) -> Receipt:
    """Bring chunks that a store here does not hold from one on another machine, with plans and histories.

    What was brought is compared with its own digests before it gets its name. Chunks that both hold are not
    compared. A transfer that was interrupted goes on, also within a chunk of many files.

    Raises:
        InputError: no connection, no store there, one of another format; another transfer is at work here.
        StoreError: the store here cannot be written, or has too little room.
    """
    if not host.has_store():
        raise InputError(f"there is no store at {host.place}")
    with tempfile.TemporaryDirectory() as folder:
        host.bring_about(Path(folder))
        about = Store(folder)
        offers = selection.of(offers_in(host.files()), manifests(about))
        stored = {(stage, key) for stage in target.stages() for key in target.keys(stage)}
        missing = [offer for offer in offers if offer.chunk not in stored]
        receipt = Receipt(str(target.path), present=len(offers) - len(missing))
        target.create()
        _refuse_without_room(target, missing)
        with arrivals(target) as drafts:
            _bring(host, missing, target, drafts, receipt, listener)
            receipt.notes = bring_belongings(about, target, str(host.place))
    return receipt


def _refuse_without_room(target: Store, missing: Sequence[Offer]) -> None:
    wanted, free = sum(offer.nbytes for offer in missing), shutil.disk_usage(target.path).free
    if wanted > free:
        raise StoreFullError(
            f"store {target.path}: {format_bytes(wanted)} are to be brought, {format_bytes(free)} are free: "
            "make room, bring some stages by --stage, or what analysis needs by --results"
        )


def _bring(
    host: Elsewhere,
    missing: Sequence[Offer],
    target: Store,
    drafts: Path,
    receipt: Receipt,
    listener: Listener | None,
) -> None:
    progress = Progress(sum(offer.nbytes for offer in missing), listener)

    def publish(offer: Offer) -> str:
        """Publish a chunk that came; why not, if it is not whole."""
        draft = drafts / offer.place
        with target.writing(str(offer)):
            try:
                whole_record(draft, *offer.chunk)
                target.publish(*offer.chunk, draft)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                return f"{offer} of {host.place}: {error}"
            finally:
                delete(draft)
        return ""

    with ThreadPoolExecutor(CHECKERS) as pool:
        for batch in batches(missing):
            host.bring([offer.place for offer in batch], drafts, progress.add)
            for offer, problem in zip(batch, pool.map(publish, batch), strict=True):
                if problem:
                    receipt.damaged.append(problem)
                else:
                    receipt.add(offer.stage, offer.nbytes, linked=False)


class Progress:
    """Bytes that have moved, of all that are to."""

    def __init__(self, total: int, listener: Listener | None) -> None:
        self._done, self._total, self._listener = 0, total, listener

    def add(self, nbytes: int) -> None:
        """Count bytes, and tell the listener."""
        self._done += nbytes
        if self._listener:
            self._listener(self._done, self._total)


def batches(offers: Sequence[Offer]) -> Iterator[list[Offer]]:
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

"""Sending a store, or a part of it, to another machine, which need not have quarkline, or a bucket."""

from __future__ import annotations

import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from pipeline.planning.manifest_files import manifests
from pipeline.store.arrival import ARRIVALS, whole_record
from pipeline.store.ledger import Ledger
from pipeline.store.plain_files import plain
from pipeline.store.shelves import PACKED
from pipeline.store.store import Store
from pipeline.transfer.belongings import bring_belongings
from pipeline.transfer.bucket import RemoteStore
from pipeline.transfer.offer import EVERYTHING, Offer, Selection, offers_in, offers_of
from pipeline.transfer.receipt import Listener, Receipt
from pipeline.transfer.transfer import CHECKERS, batches, progress, refuse_without_room


def push(
    source: Store, target: RemoteStore, selection: Selection = EVERYTHING, listener: Listener | None = None
) -> Receipt:
    """Send chunks that a store elsewhere does not hold, with plans and histories.

    Each is compared with its digests before it is sent, and what arrived with what was sent before it gets
    its name. Chunks that both hold are not compared. The source is only read.

    Raises:
        InputError: no connection, a folder there that is no store, or one of another format, chunks that the
            selection keeps apart.
        StoreError: the store there cannot be written, or has too little room.
    """
    offers = selection.of(offers_of(source), manifests(source))
    there = list(offers_in(target.files())) if target.has_store() else []
    if selection.separation:
        selection.separation.check({source: offers}, target, there)
    stored = {offer.chunk for offer in there}
    missing = [offer for offer in offers if offer.chunk not in stored]
    receipt = Receipt(target.place, present=len(offers) - len(missing))
    inside = f"{ARRIVALS}/{sha256(f'{socket.gethostname()}:{source.path}'.encode()).hexdigest()[:12]}"
    free, wanted = target.create(inside), sum(offer.nbytes for offer in missing)
    refuse_without_room(receipt.store, wanted, free, ("sent", " there", "send"))
    came = progress(wanted, listener)
    with ThreadPoolExecutor(CHECKERS) as pool:
        for batch in batches(missing):
            problems = dict(zip(batch, pool.map(lambda offer: _problem(source, offer), batch), strict=True))
            receipt.damaged += filter(None, problems.values())
            whole = [offer for offer in batch if not problems[offer]]
            target.deliver([(each.place, _shelved(each)) for each in whole], source.path, inside, came)
            for offer in whole:
                receipt.add(offer.stage, offer.nbytes, linked=False)
    receipt.notes = _send_belongings(source, target)
    target.remove(inside)
    return receipt


def _problem(source: Store, offer: Offer) -> str:
    """The reason why a chunk is not sent, if it is not whole."""
    try:
        whole_record(source.path / offer.place, *offer.chunk)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{offer} in {source.path}: {error}"
    return ""


def _shelved(offer: Offer) -> str:
    """Place of a chunk in a store of this format."""
    end = PACKED if offer.place.endswith(PACKED) else ""
    return f"{offer.stage}/{offer.key[:3]}/{offer.key}{end}"


def _send_belongings(source: Store, target: RemoteStore) -> list[str]:
    """Unite plans and histories with those there, here in a folder, and send what is new."""
    with tempfile.TemporaryDirectory() as folder:
        about = Store(folder)
        about.create()
        target.bring_about(about.path)
        ledger = Ledger(about).path
        before, held = _contents(about.path), ledger.stat().st_size if ledger.exists() else 0
        notes = bring_belongings(source, about)
        changed = [name for name, content in _contents(about.path).items() if before.get(name) != content]
        if changed:
            target.send_about(changed, about.path)
        if ledger.exists():
            with plain(ledger).open("rb") as entries:
                entries.seek(held)
                if new := entries.read():
                    target.append(".ledger.jsonl", new.decode())
        return notes


def _contents(folder: Path) -> dict[str, bytes]:
    files = (
        path for part in (".workflows", ".runs") for path in (folder / part).rglob("*") if path.is_file()
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}

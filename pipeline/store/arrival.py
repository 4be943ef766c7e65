"""Chunks that come from another store: where drafts lie, and how they are compared with digests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.store.durable import delete, flocked
from pipeline.store.group import array_digest, open_group, open_packed, recorded_sums
from pipeline.store.packed import unpacked
from pipeline.store.plain_files import content_of
from pipeline.store.record import RECORD, RECORD_BYTES, record_in
from pipeline.store.shelves import links_in, refuse_links
from pipeline.store.store import Store
from stages.base.errors import InputError

ARRIVALS = ".incoming"
"""Folder of a store in which what arrives lies until it is published; drivers do not look at it."""


@contextmanager
def arrivals(store: Store) -> Iterator[Path]:
    """The folder for what arrives, of one transfer at a time; it is removed where all went well.

    What an interrupted transfer left stays for the next one, which may use it.

    Raises:
        InputError: another transfer into this store is at work.
    """
    folder = store.inside(ARRIVALS)
    with store.writing("its folder of arrivals"):
        folder.mkdir(exist_ok=True)
        handle = os.open(store.inside(f"{ARRIVALS}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not flocked(handle):
            raise InputError(
                f"something is brought into store {store.path} at this moment: wait until that has ended"
            )
        for link in links_in(folder):
            link.unlink()
        yield folder
        delete(folder)
    finally:
        os.close(handle)


def sweep_arrivals(store: Store) -> None:
    """Remove what an interrupted transfer left, unless one is at work."""
    if (store.path / ARRIVALS).is_dir():
        with suppress(InputError), arrivals(store):
            pass  # whoever has the folder to himself removes it


def whole_record(path: Path, stage: str, key: str) -> dict[str, Any]:
    """The record of the chunk in a file or folder, after every array of it was read and compared.

    Raises:
        ValueError, OSError, KeyError, TypeError: it is not what was written, or cannot be read.
    """
    refuse_links(path)
    if path.is_dir():
        record = record_in(content_of(path / RECORD, RECORD_BYTES), stage, key)
        group = open_group(path, recorded_sums(record))
    else:
        files = unpacked(content_of(path))
        record = record_in(files[RECORD], stage, key)
        group = open_packed(files, recorded_sums(record))
    for name, about in record["arrays"].items():
        if array_digest(group[name]) != about["digest"]:  # type: ignore[arg-type]
            raise ValueError(f"digest of {name} differs from the record")
    return record

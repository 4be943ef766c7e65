"""Chunks that a store can give, with their places and sizes: all or some of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from pipeline.planning.manifest import Manifest
from pipeline.store.durable import nbytes_of
from pipeline.store.errors import DamagedChunkError
from pipeline.store.record import Record
from pipeline.store.shelves import PACKED, ChunkId, chunk_entries, chunk_in
from pipeline.store.store import Store
from stages.base.errors import InputError, suggestion

Records = list[tuple[str, Record]]
"""Each with the place of its store."""


@dataclass(frozen=True)
class Offer:
    """A chunk of a store, its place below the store's folder, and its bytes."""

    stage: str
    key: str
    place: str
    nbytes: int

    @property
    def chunk(self) -> ChunkId:
        """Stage and key."""
        return self.stage, self.key

    def __str__(self) -> str:
        return f"{self.stage}/{self.key[:12]}"


class Elsewhere(Protocol):
    """A store elsewhere, of which chunks can be brought."""

    place: str

    def bring(self, offers: Sequence[Offer], folder: Path, came: Callable[[int], None]) -> dict[str, str]:
        """Bring chunks into a folder here."""


@dataclass(frozen=True)
class Separation:
    """Chunks of some stages that must not come into one store.

    first: those of them without whose chunks there is nothing to separate. refuse: raises InputError for
    chunks that come and those that are there.
    """

    first: tuple[str, ...]
    stages: tuple[str, ...]
    refuse: Callable[[Records, Records], None]

    def check(
        self,
        coming: Mapping[Store | Elsewhere, Iterable[Offer]],
        target: Store | Elsewhere,
        there: Iterable[Offer],
    ) -> None:
        """Raise InputError for chunks that are to come from stores, and those that a store has."""
        some = {place: [e for e in offers if e.stage in self.stages] for place, offers in coming.items()}
        present = [each for each in there if each.stage in self.stages]
        if any(some.values()) and any(e.stage in self.first for e in (*present, *chain(*some.values()))):
            comes = [each for place, offers in some.items() for each in _records(place, offers)]
            self.refuse(comes, _records(target, present))


def _records(place: Store | Elsewhere, offers: Sequence[Offer]) -> Records:
    """Records of chunks, without those that are damaged, which are told of where they are brought."""
    if offers and not isinstance(place, Store):
        with tempfile.TemporaryDirectory() as folder:
            (copy := Store(folder)).create()
            place.bring(offers, copy.path, lambda _: None)
            return [(place.place, record) for _, record in _records(copy, offers)]
    records: Records = []
    for offer in offers:
        with suppress(DamagedChunkError, OSError):
            assert isinstance(place, Store)
            records.append((str(place.path), Record.of(place.record(*offer.chunk))))
    return records


@dataclass(frozen=True)
class Selection:
    """Chunks that are wanted: those of some stages, or of results; all, where neither is said.

    names: of stages, or of nodes of a workflow. results: which nodes of the plans are results; their chunks
    are wanted, and all that are files, which have at most a mebibyte. separation: of what must not come.
    """

    names: tuple[str, ...] = ()
    results: Callable[[Collection[Manifest]], tuple[str, ...]] | None = None
    separation: Separation | None = None

    def of(self, offers: Iterable[Offer], manifests: Collection[Manifest]) -> list[Offer]:
        """The offers that are wanted.

        Raises:
            InputError: a name that is none of a stage or a node.
        """
        offers = list(offers)
        if not self.names and self.results is None:
            return offers
        nodes = [(label, node) for manifest in manifests for label, node in manifest.nodes.items()]
        stages = {offer.stage for offer in offers}
        wanted: set[str] = set()
        for name in (*self.names, *(self.results(manifests) if self.results else ())):
            if name not in (known := {*stages, *(label for label, _ in nodes)}):
                raise InputError(f"no stage or node is named {name!r}{suggestion(name, known)}")
            wanted.update(offer.key for offer in offers if offer.stage == name)
            wanted.update(*(node.chunks.in_order() for label, node in nodes if label == name))
        small = self.results is not None
        return [each for each in offers if each.key in wanted or (small and each.place.endswith(PACKED))]


EVERYTHING = Selection()


def offers_of(store: Store) -> list[Offer]:
    """All chunks of a store, by listing it.

    Raises:
        InputError: it cannot be listed.
    """
    return [
        Offer(stage, key, os.path.relpath(entry.path, store.path), _nbytes(entry))
        for stage in store.stages()
        for key, entry in chunk_entries(store.path / stage)
    ]


def _nbytes(entry: os.DirEntry[str]) -> int:
    return entry.stat().st_size if entry.name.endswith(PACKED) else nbytes_of(Path(entry.path))


def offers_in(files: Iterable[tuple[str, int]]) -> Iterator[Offer]:
    """The chunks that files are of, by their paths below a store's folder and their bytes."""
    found: dict[tuple[str, str, str], int] = {}
    for path, nbytes in files:
        if chunk := chunk_in(path):
            found[chunk] = found.get(chunk, 0) + nbytes
    return (Offer(*chunk, nbytes) for chunk, nbytes in found.items())

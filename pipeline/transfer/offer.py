"""Chunks that a store can give, with their places and sizes: all or some of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.planning.manifest import Manifest
from pipeline.store.durable import nbytes_of
from pipeline.store.shelves import PACKED, ChunkId, chunk_entries, chunk_in
from pipeline.store.store import Store
from stages.base.errors import InputError, suggestion


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


@dataclass(frozen=True)
class Selection:
    """Chunks that are wanted: those of some stages, or of results; all, where neither is said.

    names: of stages, or of nodes of a workflow. results: which nodes of the plans are results; their chunks
    are wanted, and all that are files, which have at most a mebibyte.
    """

    names: tuple[str, ...] = ()
    results: Callable[[Collection[Manifest]], tuple[str, ...]] | None = None

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

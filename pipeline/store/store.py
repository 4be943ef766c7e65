"""The store: one immutable Zarr v3 group per chunk, published as a whole by one rename or link.

Below `<store>/<stage>/<first three digits of the key>/`, a chunk of at most 1 MiB is one file
`<key>.zarr.zip`; a larger one, or one whose stage asks for pieces, is a folder `<key>/`. Format 1 kept every
chunk as a folder `<store>/<stage>/<key>/`: it is read as it lies.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.declare.text import reason
from pipeline.store.checkpoint import checkpoints, remove_checkpoint
from pipeline.store.durable import delete, flush, flush_all, flush_group, give_name
from pipeline.store.errors import DamagedChunkError, StoreError, StoreFullError, UnreadableChunkError
from pipeline.store.mark import FORMAT, MARK, format_of, mark
from pipeline.store.packed import unpacked
from pipeline.store.plain_files import content_of
from pipeline.store.record import RECORD_BYTES, Facts, record_in
from pipeline.store.shelves import (
    ALL_READ,
    PACKED,
    ChunkId,
    chunk_entries,
    has_pieces,
    inside,
    is_stage,
    linked,
    listed,
    place_of,
    shelf_of,
    strangers,
)
from pipeline.store.stored_array import StoredArray
from stages.base.errors import InputError

if TYPE_CHECKING:
    import zarr

    from pipeline.store.group import Pieces

PACKED_BYTES = 1 << 20
"""Arrays of a chunk that take no more lie in one file, unless pieces were asked for: one inode, one flush."""

READ = {".workflows", ".runs", ".campaigns"}
"""Folders without which a store would look as if its chunks were nobody's, and nothing had run."""

_flushed_entries: set[Path] = set()
"""Folders of stages whose entry in their store this process has flushed; who made them may not have yet."""

_URL = re.compile("[a-z][a-z0-9+]+:/")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Store:
    """A folder of committed chunks. A chunk exists if and only if its file, or its folder, does."""

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if _URL.match(os.fspath(path)):
            raise InputError(
                f"{path} is no folder here: quarkline pull brings stores from other machines and object "
                "storage; open_result and status read s3://bucket/store where it lies"
            )
        object.__setattr__(self, "path", Path(path).absolute())
        format_of(self.path)
        for entry in listed(self.path):
            if entry.name[0] == "." and entry.is_symlink():
                raise linked(entry.path)
            if entry.name in READ and not os.access(entry.path, os.R_OK | os.X_OK):
                raise InputError(f"{entry.path} cannot be read: Permission denied; {ALL_READ}")

    @classmethod
    def at(cls, place: Store | str | os.PathLike[str]) -> Store:
        """The store itself, or the one in a folder that may not exist yet."""
        return place if isinstance(place, Store) else cls(place)

    @classmethod
    def existing(cls, place: Store | str | os.PathLike[str]) -> Store:
        """The store, or that in a folder. Raises InputError where there is none yet."""
        if not (store := cls.at(place)).exists():
            raise InputError(f"there is no store at {store.path}")
        return store

    def exists(self) -> bool:
        """True if the folder is a store already."""
        return (self.path / MARK).exists()

    def create(self) -> None:
        """Make the folder ready to be written; does nothing to a store that exists."""
        written = format_of(self.path)
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with self.writing("its folder"):
            for folder in (self.path.resolve(), *map(self.inside, (".tmp", ".runs", ".workflows"))):
                folder.mkdir(parents=True, exist_ok=True)
            if written != FORMAT:
                mark(self.path)
            for folder in new:
                flush(folder.parent)

    @property
    def temporary(self) -> Path:
        """The folder of drafts that are not committed yet."""
        return self.inside(".tmp")

    def inside(self, *names: str) -> Path:
        """A file or folder of the store's own, by its names below the folder.

        Raises:
            StoreError: one of the names is a link.
        """
        return inside(self.path, *names)

    def location(self, stage: str, key: str) -> Path:
        """The file or folder of a chunk; where there is none, the file that a small one would be."""
        folder = self.path / stage
        place = place_of(folder, key)
        for path in (folder, place.parent, place):
            if os.path.islink(path):
                raise linked(path)
        return place

    @property
    def checkpoints(self) -> Path:
        """The folder in which chunks in flight keep their state."""
        return self.inside(".checkpoints")

    def has(self, stage: str, key: str) -> bool:
        """True if a chunk was committed."""
        return self.location(stage, key).exists()

    def keys(self, stage: str) -> set[str]:
        """The keys of all committed chunks of a stage, by listing its folders."""
        return set(self.each_key(stage))

    def each_key(self, stage: str) -> Iterator[str]:
        """The keys of all committed chunks of a stage, one by one, while its folders are listed."""
        return (key for key, _ in chunk_entries(self.inside(stage)))

    def chunks(self) -> set[ChunkId]:
        """Stage and key of every committed chunk."""
        return {(stage, key) for stage in self.stages() for key in self.each_key(stage)}

    def gaps(self, stage: str, wanted: Iterable[str]) -> dict[str, bool]:
        """Keys of a stage's chunks that are not there whole; True where a purge emptied or took files.

        A packed chunk costs one `stat`; a folder its record and a listing of each array. Nothing else is
        read: content that was changed is noticed when it is used.
        """
        absent = dict.fromkeys(wanted, False)
        for key, entry in chunk_entries(self.inside(stage)):
            if key in absent:
                if self._has_files(stage, key, entry):
                    del absent[key]
                else:
                    absent[key] = True
        return absent

    def _has_files(self, stage: str, key: str, entry: os.DirEntry[str]) -> bool:
        try:
            if entry.name.endswith(PACKED):
                return entry.is_file() and entry.stat().st_size > 0
            arrays = self.record(stage, key)["arrays"]
            return all(has_pieces(Path(entry.path, name), array) for name, array in arrays.items())
        except (OSError, ValueError, KeyError, TypeError, DamagedChunkError):
            return False
        except UnreadableChunkError:
            return True

    def stages(self) -> list[str]:
        """Names of the stages that have chunks."""
        return sorted(entry.name for entry in listed(self.path) if is_stage(entry))

    def foreign(self) -> list[Path]:
        """Files and folders inside the store's that are none of its own: nothing here touches them."""
        entries = [entry for entry in listed(self.path) if entry.name[0] != "." and entry.name != MARK]
        others = [Path(entry.path) for entry in entries if not is_stage(entry)]
        inside = (strangers(Path(entry.path)) for entry in entries if is_stage(entry))
        return sorted(chain(others, *inside))

    def commit(
        self,
        stage: str,
        key: str,
        arrays: Mapping[str, np.ndarray],
        dims: Mapping[str, tuple[str, ...]],
        record: Facts,
        pieces: Pieces | None = None,
    ) -> bool:
        """Write one chunk durably; False if it was there already (the first one stays).

        All is written under a temporary name and flushed (data, then record, then folders), then published by
        one link or rename, which is flushed too. The record gets the chunk's stage and key, the digest of
        each array, the sums of its files, and a digest of itself.

        Args:
            stage: name of the stage.
            key: the chunk's key.
            arrays: the chunk's arrays by name, on the host.
            dims: names of the dimensions of each array.
            record: all else that is kept with the chunk, in JSON's types.
            pieces: per array, how many entries along some dimensions lie in a piece that is read alone.

        Raises:
            StoreFullError: no space; the temporary is removed, what was committed before is safe.
            StoreError: the store cannot be written.
        """
        from pipeline.store.group import GroupContent, write_folder, write_packed  # of Zarr: half a second

        if self.has(stage, key):
            return False
        draft = (
            self.temporary / f"{stage}-{key[:12]}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        )
        content = GroupContent(arrays, dims, {**record, "stage": stage, "key": key}, pieces or {})
        with self.writing(f"{stage}/{key[:12]}"):
            try:
                if content.nbytes <= PACKED_BYTES and not any(content.pieces.values()):
                    draft.write_bytes(write_packed(content))
                else:
                    draft.mkdir()  # not its parents: a store that vanished is not made anew
                    write_folder(draft, content)
                return self.publish(stage, key, draft)
            finally:
                delete(draft)

    def publish(self, stage: str, key: str, draft: Path) -> bool:
        """Flush a draft, a file or a folder in this store, and make it the chunk; False if there is one.

        A file stays under the draft's name, too. Raises OSError.
        """
        shelf = shelf_of(self.inside(stage), key)
        self.inside(stage, shelf.name)
        if not draft.is_dir():
            flush_all([draft, *self._new_entries(shelf)])
            return self._publish(draft, shelf / f"{key}{PACKED}", give_name)
        flush_all(self._new_entries(shelf))
        flush_group(draft)
        return self._publish(draft, shelf / key, os.rename)

    def _publish(self, draft: Path, target: Path, move: Callable[[Path, Path], None]) -> bool:
        """Give a draft its place; False if that is taken."""
        shelf = target.parent
        try:
            move(draft, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        flush(shelf)
        _flushed_entries.update((shelf, shelf.parent))
        return True

    def _new_entries(self, shelf: Path) -> list[Path]:
        """Make the folders that will hold a chunk; returns those above them that are to be flushed."""
        new = [f for f in (shelf.parent, shelf) if f not in _flushed_entries or not f.is_dir()]
        for folder in new:
            folder.mkdir(exist_ok=True)  # perhaps by another process, which has not flushed it yet
        return [folder.parent for folder in new]

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Turn errors of the file system into one clear message."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFullError(
                    f"store {self.path}: {error.strerror} while writing {what}; what was committed is safe, "
                    "make room and run the same command again"
                ) from error
            raise StoreError(f"store {self.path}: cannot write {what}: {error.strerror or error}") from error

    def record(self, stage: str, key: str) -> dict[str, Any]:
        """Parameters, coordinates, input keys, statistics and digests of a chunk.

        Every read compares the record with its own digest, and its stage and key with where it lies.
        """
        with self.reading(stage, key):
            return self._content(stage, key)[0]

    def _content(self, stage: str, key: str) -> tuple[dict[str, Any], dict[str, bytes] | None]:
        """The record, and all files of a packed chunk, which is read at once."""
        path = self.location(stage, key)
        if not path.name.endswith(PACKED):
            return record_in(content_of(path / "zarr.json", RECORD_BYTES), stage, key), None
        files = unpacked(content_of(path))
        return record_in(files["zarr.json"], stage, key), files

    def arrays(self, stage: str, key: str) -> dict[str, StoredArray]:
        """All arrays of a chunk, to be read in part."""
        return {name: self.array(stage, key, name) for name in self.record(stage, key)["arrays"]}

    def array(self, stage: str, key: str, name: str) -> StoredArray:
        """An array of a committed chunk, which is opened when it is first asked for something."""
        return StoredArray(partial(self.open, stage, key), partial(self.reading, stage, key), name)

    def load(self, stage: str, key: str) -> dict[str, np.ndarray]:
        """All arrays of a chunk, each piece checked as `open` says. `verify` compares their SHA-256, too."""
        group = self.open(stage, key)
        with self.reading(stage, key):
            return {name: np.asarray(group[name][...]) for name in group.attrs["arrays"]}  # type: ignore

    @contextmanager
    def reading(self, stage: str, key: str) -> Iterator[None]:
        """Turn what a damaged chunk raises while it is read into one clear message.

        Raises:
            DamagedChunkError: its content is not what was written, or files of it are gone.
            UnreadableChunkError: the file system does not give it, or the whole store is away.
        """
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # of whatever kind: content that was changed makes codecs raise anything
            gone = isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
            name = f"chunk {stage}/{key[:12]} of store {self.path}"
            passing = isinstance(error, (OSError, MemoryError, RuntimeError))
            passing = passing and not isinstance(error, RecursionError)  # of content, which only nests
            if passing and not (gone and self.exists()):
                why = getattr(error, "strerror", None) or error or "too little memory"
                raise UnreadableChunkError(
                    f"{name} cannot be read ({why}): nothing is said about its content; "
                    "see to the file system or its permissions, and run the same command again"
                ) from error
            raise DamagedChunkError(
                f"{name} is damaged ({reason(error)}): the next run that reads it computes it again, "
                f"and `quarkline verify --remove {self.path}` drops it",
                stage,
                key,
            ) from error

    def open(self, stage: str, key: str) -> zarr.Group:
        """The chunk's Zarr group, read-only: a part of a large array can be read alone.

        Every piece that is read is compared with its CRC32C, and that with the one in the record, so that
        pieces of two chunks that changed places are noticed. It costs nothing beside reading them.
        """
        from pipeline.store.group import open_group, open_packed, recorded_sums

        with self.reading(stage, key):
            record, files = self._content(stage, key)
            sums = recorded_sums(record)
            return open_group(self.location(stage, key), sums) if files is None else open_packed(files, sums)

    def set_aside(self, stage: str, key: str, reason: str = "") -> Path | None:
        """Move a chunk to `.damaged/`, where nothing looks for it; None if it is not there.

        reason: if given, stands beside it in a file of its name and `.reason`.
        """
        path = self.location(stage, key)
        grave = self.inside(".damaged", stage) / f"{path.name}-{uuid.uuid4().hex[:8]}"
        with self.writing(f"{stage}/{key[:12]}"):
            for parent in (grave.parents[1], grave.parent):
                parent.mkdir(exist_ok=True)
            try:
                os.rename(path, grave)
            except FileNotFoundError:
                return None
            flush(path.parent)
            if reason:
                grave.with_name(f"{grave.name}.reason").write_text(f"{reason}\n")
        return grave

    def remove(self, stage: str, key: str) -> None:
        """Take a chunk away: it vanishes at once, its bytes a little later."""
        grave = self.temporary / f"removed-{uuid.uuid4().hex}"
        with self.writing(f"{stage}/{key[:12]}"):
            os.rename(self.location(stage, key), grave)
        delete(grave)

    def sweep(self) -> int:
        """Remove what interrupted writers left; returns how many. Only for the one driver of the store.

        A checkpoint stays unless its chunk was committed since.
        """
        drafts = list(self.temporary.iterdir()) if self.temporary.is_dir() else []
        for draft in drafts:
            delete(draft)
        for folder in checkpoints(self.checkpoints):
            if self.has(folder.parent.name, folder.name):
                remove_checkpoint(folder)
        return len(drafts)

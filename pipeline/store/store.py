"""The store: one immutable Zarr v3 group per chunk, published as a whole by one rename or link.

Below `<store>/<stage>/<first three digits of the key>/`, a chunk of at most 1 MiB is one file
`<key>.zarr.zip`; a larger one, or one whose stage asks for pieces, is a folder `<key>/`. Format 1 kept every
chunk as a folder `<store>/<stage>/<key>/`: it is read as it lies.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from pipeline.store.checkpoint import checkpoints, remove_checkpoint
from pipeline.store.durable import flush, flush_all, flush_group, write_atomically
from pipeline.store.group import (
    Pieces,
    open_group,
    open_packed,
    recorded_sums,
    unpacked,
    write_folder,
    write_packed,
)
from pipeline.store.record import record_in
from stages.errors import InputError

FORMAT = 2
READABLE = (1, 2)
MARK = "quarkline.json"

PACKED_BYTES = 1 << 20
"""Arrays of a chunk that take no more lie in one file, unless pieces were asked for: one inode, one flush."""

PACKED = ".zarr.zip"

_KEY = re.compile(r"[0-9a-f]{64}")
_SHELF = re.compile(r"[0-9a-f]{3}")

_flushed_entries: set[Path] = set()
"""Folders of stages whose entry in their store this process has flushed; who made them may not have yet."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreError(InputError):
    """The store cannot be written: nothing later in a run can be committed either."""


class StoreFullError(StoreError):
    """Error of a store without room to write."""


class DamagedChunkError(InputError):
    """A committed chunk whose content is not what was written: files that are gone, sums that differ."""

    def __init__(self, message: str, stage: str = "", key: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.key = key


class UnreadableChunkError(InputError):
    """A committed chunk that cannot be read now (I/O error, permission), whatever its content."""


@dataclass(frozen=True)
class Holdings:
    """Keys of a stage's committed chunks; `lacking` are those with files that a purge emptied or took."""

    whole: frozenset[str]
    lacking: frozenset[str]


@dataclass(frozen=True)
class Store:
    """A folder of committed chunks. A chunk exists if and only if its file, or its folder, does."""

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path).absolute())
        self._check_format()

    def _check_format(self) -> None:
        """Refuse what is not a store of this format; a folder that does not exist yet is a new store."""
        try:
            written = json.loads((self.path / MARK).read_text())["format"]
        except FileNotFoundError:
            if self.path.is_dir() and any(self.path.iterdir()):
                raise InputError(
                    f"{self.path} is a folder, but not a quarkline store: choose another"
                ) from None
            return
        except OSError as error:
            raise InputError(f"store {self.path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"store {self.path}: {MARK} is damaged; it should say {_mark()}") from error
        if written not in READABLE:
            raise InputError(
                f"store {self.path} has format {written}, this version of quarkline reads 1 and {FORMAT} "
                "and writes the latter: use the version that wrote it, or another store"
            )

    def _format(self) -> int | None:
        try:
            return int(json.loads((self.path / MARK).read_text())["format"])
        except FileNotFoundError:
            return None

    def exists(self) -> bool:
        """True if the folder is a store already."""
        return (self.path / MARK).exists()

    def create(self) -> None:
        """Make the folder ready to be written; does nothing to a store that exists."""
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with self.writing("its folder"):
            for folder in (self.path, self.temporary, self.path / ".runs", self.path / ".workflows"):
                folder.mkdir(parents=True, exist_ok=True)
            if self._format() != FORMAT:  # older versions then refuse it, instead of computing all again
                write_atomically(self.path / MARK, _mark())
            for folder in new:
                flush(folder.parent)

    @property
    def temporary(self) -> Path:
        """The folder of drafts that are not committed yet."""
        return self.path / ".tmp"

    def location(self, stage: str, key: str) -> Path:
        """The file or folder of a chunk; where there is none, the file that a small one would be."""
        shelf = self.path / stage / key[:3]
        for path in (shelf / key, self.path / stage / key):
            if path.is_dir():
                return path
        return shelf / f"{key}{PACKED}"

    @property
    def checkpoints(self) -> Path:
        """The folder in which chunks in flight keep their state."""
        return self.path / ".checkpoints"

    def has(self, stage: str, key: str) -> bool:
        """True if a chunk was committed."""
        return self.location(stage, key).exists()

    def keys(self, stage: str) -> set[str]:
        """The keys of all committed chunks of a stage, by listing its folders."""
        return {key for key, _ in self._entries(stage)}

    def holdings(self, stage: str, wanted: Collection[str]) -> Holdings:
        """The committed chunks of a stage, those among `wanted` looked at for files that are empty or gone.

        A packed chunk costs one `stat`; a folder its record and a listing of each array. Nothing else is
        read: content that was changed is noticed when it is used.
        """
        whole: set[str] = set()
        lacking: set[str] = set()
        for key, entry in self._entries(stage):
            (whole if key not in wanted or self._has_files(stage, key, entry) else lacking).add(key)
        return Holdings(frozenset(whole), frozenset(lacking))

    def _has_files(self, stage: str, key: str, entry: os.DirEntry[str]) -> bool:
        try:
            if entry.name.endswith(PACKED):
                return entry.stat().st_size > 0
            path = Path(entry.path)
            arrays = self.record(stage, key)["arrays"]
            return all(_pieces(path / name, array) <= _names(path / name) for name, array in arrays.items())
        except (OSError, ValueError, KeyError, TypeError, DamagedChunkError):
            return False
        except UnreadableChunkError:
            return True

    def stages(self) -> list[str]:
        """Names of the stages that have chunks."""
        return sorted(item.name for item in _listed(self.path) if _is_stage(item))

    def foreign(self) -> list[Path]:
        """Files and folders inside the store's that are none of its own: nothing here touches them."""
        items = [item for item in _listed(self.path) if item.name[0] != "." and item.name != MARK]
        found = [Path(item.path) for item in items if not _is_stage(item)]
        for stage in filter(_is_stage, items):
            for entry in _listed(Path(stage.path)):
                if _SHELF.fullmatch(entry.name) and entry.is_dir():
                    found += [Path(e.path) for e in _listed(Path(entry.path)) if not _key_of(e.name)]
                elif not _KEY.fullmatch(entry.name):
                    found.append(Path(entry.path))
        return sorted(found)

    def _entries(self, stage: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Key and place of every committed chunk of a stage."""
        for entry in _listed(self.path / stage):
            if _KEY.fullmatch(entry.name):
                yield entry.name, entry
            elif _SHELF.fullmatch(entry.name):
                for chunk in _listed(Path(entry.path)):
                    if key := _key_of(chunk.name):
                        yield key, chunk

    def commit(
        self,
        stage: str,
        key: str,
        arrays: Mapping[str, np.ndarray],
        dims: Mapping[str, tuple[str, ...]],
        record: Mapping[str, Any],
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
        if self.has(stage, key):
            return False
        draft = (
            self.temporary / f"{stage}-{key[:12]}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        )
        about = {**record, "stage": stage, "key": key}
        with self.writing(f"{stage}/{key[:12]}"):
            try:
                nbytes = sum(array.nbytes for array in arrays.values())
                if nbytes <= PACKED_BYTES and not any((pieces or {}).values()):
                    draft.write_bytes(write_packed(arrays, dims, about, pieces or {}))
                    flush_all([draft, *self._new_entries(stage, key)])
                    return self._publish(draft, stage, key, _link)
                write_folder(draft, arrays, dims, about, pieces or {})
                flush_all(self._new_entries(stage, key))
                flush_group(draft)
                return self._publish(draft, stage, key, os.rename)
            finally:
                _delete(draft)

    def _publish(self, draft: Path, stage: str, key: str, move: Callable[[Path, Path], None]) -> bool:
        shelf = self.path / stage / key[:3]
        try:
            move(draft, shelf / (f"{key}{PACKED}" if move is _link else key))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        flush(shelf)
        _flushed_entries.update((shelf, shelf.parent))
        return True

    def _new_entries(self, stage: str, key: str) -> list[Path]:
        """Make the folders that will hold a chunk; returns those above them that are to be flushed."""
        shelf = self.path / stage / key[:3]
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
            return record_in((path / "zarr.json").read_bytes(), stage, key), None
        files = unpacked(path.read_bytes())
        return record_in(files["zarr.json"], stage, key), files

    def arrays(self, stage: str, key: str) -> dict[str, StoredArray]:
        """All arrays of a chunk, to be read in part."""
        return {name: StoredArray(self, stage, key, name) for name in self.record(stage, key)["arrays"]}

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
        except (OSError, ValueError, KeyError, TypeError) as error:
            gone = isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
            name = f"chunk {stage}/{key[:12]} of store {self.path}"
            if isinstance(error, OSError) and not (gone and self.exists()):
                raise UnreadableChunkError(
                    f"{name} cannot be read ({error.strerror or error}): nothing is said about its content; "
                    "see to the file system or its permissions, and run the same command again"
                ) from error
            raise DamagedChunkError(
                f"{name} is damaged ({error}): the next run that reads it computes it again, "
                f"and `quarkline verify --remove {self.path}` drops it",
                stage,
                key,
            ) from error

    def open(self, stage: str, key: str) -> zarr.Group:
        """The chunk's Zarr group, read-only: a part of a large array can be read alone.

        Every piece that is read is compared with its CRC32C, and that with the one in the record, so that
        pieces of two chunks that changed places are noticed. It costs nothing beside reading them.
        """
        with self.reading(stage, key):
            record, files = self._content(stage, key)
            sums = recorded_sums(record)
            return open_group(self.location(stage, key), sums) if files is None else open_packed(files, sums)

    def set_aside(self, stage: str, key: str) -> Path | None:
        """Move a damaged chunk to `.damaged/`, where nothing looks for it; None if it is not there."""
        path = self.location(stage, key)
        grave = self.path / ".damaged" / stage / f"{path.name}-{uuid.uuid4().hex[:8]}"
        with self.writing(f"{stage}/{key[:12]}"):
            grave.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(path, grave)
            except FileNotFoundError:
                return None
            flush(path.parent)
        return grave

    def remove(self, stage: str, key: str) -> None:
        """Take a chunk away: it vanishes at once, its bytes a little later."""
        grave = self.temporary / f"removed-{uuid.uuid4().hex}"
        with self.writing(f"{stage}/{key[:12]}"):
            os.rename(self.location(stage, key), grave)
        _delete(grave)

    def sweep(self) -> int:
        """Remove what interrupted writers left; returns how many. Only for the one driver of the store.

        A checkpoint stays unless its chunk was committed since.
        """
        drafts = list(self.temporary.iterdir()) if self.temporary.is_dir() else []
        for draft in drafts:
            _delete(draft)
        for folder in checkpoints(self.checkpoints):
            if self.has(folder.parent.name, folder.name):
                remove_checkpoint(folder)
        return len(drafts)


def _mark() -> str:
    return json.dumps({"format": FORMAT})


def _link(draft: Path, target: Path) -> None:
    """Give a file its name, unless that is taken; by a rename where the file system has no links."""
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(draft, target)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(
            f"{folder} cannot be listed: {error.strerror}; a store reads all its folders"
        ) from error


def _key_of(name: str) -> str:
    """The key of a chunk by the name of its file or folder, empty where it is none."""
    key = name.removesuffix(PACKED)
    return key if _KEY.fullmatch(key) else ""


def _is_stage(item: os.DirEntry[str]) -> bool:
    if item.name[0] == "." or not item.is_dir():
        return False
    return any(
        _KEY.fullmatch(entry.name)
        or (_SHELF.fullmatch(entry.name) and any(_key_of(e.name) for e in _listed(Path(entry.path))))
        for entry in _listed(Path(item.path))
    )


def _names(folder: Path) -> set[str]:
    """Names of the files of a folder that are not empty."""
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.stat().st_size > 0}


def _pieces(folder: Path, array: Mapping[str, Any]) -> set[str]:
    """Names of the files of an array, by its record, or by its metadata where the record is of format 1."""
    if "pieces" in array:
        return {"zarr.json", *array["pieces"]}
    metadata = json.loads((folder / "zarr.json").read_bytes())
    shape, piece = metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // length) for n, length in zip(shape, piece, strict=True)]
    if not prod(counts):
        return {"zarr.json"}
    return {"zarr.json", *(".".join(["c", *map(str, at)]) for at in np.ndindex(*counts))}


@dataclass(frozen=True)
class StoredArray:
    """An array of a committed chunk, read by slices: ``vectors[:4]``; ``np.asarray(vectors)`` reads all.

    Nothing is kept in memory. A piece that is damaged or gone raises DamagedChunkError when it is read.
    """

    store: Store
    stage: str
    key: str
    name: str

    @cached_property
    def _array(self) -> zarr.Array:
        group = self.store.open(self.stage, self.key)
        with self.store.reading(self.stage, self.key):
            if self.name not in group.attrs["arrays"]:  # type: ignore[operator]
                raise KeyError(f"its record names no array {self.name}")
            return group[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self._array.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return np.dtype(self._array.dtype)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a piece, as Zarr and Dask call it."""
        return tuple(self._array.chunks)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> np.ndarray:
        array = self._array
        with self.store.reading(self.stage, self.key):
            return np.asarray(array[part])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)

"""The store: one immutable Zarr v3 group per chunk, `<store>/<stage>/<key>/`, published by one rename."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from pipeline.store.checkpoint import checkpoints, remove_checkpoint
from pipeline.store.durable import flush, flush_group, write_atomically
from pipeline.store.group import array_digest, create_group, open_group, record_in, write_array
from stages.errors import InputError

FORMAT = 1
MARK = "quarkline.json"

_flushed_entries: set[Path] = set()
"""Folders of stages whose entry in their store this process has flushed; who made them may not have yet."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreError(InputError):
    """The store cannot be written: nothing later in a run can be committed either."""


class StoreFullError(StoreError):
    """Error of a store without room to write."""


class DamagedChunkError(InputError):
    """A committed chunk that cannot be read back as it was written."""


@dataclass(frozen=True)
class Store:
    """A folder of committed chunks. A chunk exists if and only if its folder does."""

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
        if written != FORMAT:
            raise InputError(
                f"store {self.path} has format {written}, this version of quarkline reads and writes "
                f"{FORMAT}: use the version that wrote it, or another store"
            )

    def exists(self) -> bool:
        """True if the folder is a store already."""
        return (self.path / MARK).exists()

    def create(self) -> None:
        """Make the folder ready to be written; does nothing to a store that exists."""
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with self.writing("its folder"):
            for folder in (self.path, self.temporary, self.path / ".runs", self.path / ".workflows"):
                folder.mkdir(parents=True, exist_ok=True)
            if not self.exists():
                write_atomically(self.path / MARK, _mark())
            for folder in new:
                flush(folder.parent)

    @property
    def temporary(self) -> Path:
        """The folder of drafts that are not committed yet."""
        return self.path / ".tmp"

    def location(self, stage: str, key: str) -> Path:
        """The folder of a chunk, whether it exists or not."""
        return self.path / stage / key

    @property
    def checkpoints(self) -> Path:
        """The folder in which chunks in flight keep their state."""
        return self.path / ".checkpoints"

    def has(self, stage: str, key: str) -> bool:
        """True if a chunk was committed."""
        return self.location(stage, key).is_dir()

    def keys(self, stage: str) -> set[str]:
        """The keys of all committed chunks of a stage, by one listing."""
        try:
            with os.scandir(self.path / stage) as entries:
                return {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def stages(self) -> list[str]:
        """Names of the stages that have a folder."""
        if not self.path.is_dir():
            return []
        return sorted(item.name for item in self.path.iterdir() if item.is_dir() and item.name[0] != ".")

    def commit(
        self,
        stage: str,
        key: str,
        arrays: Mapping[str, np.ndarray],
        dims: Mapping[str, tuple[str, ...]],
        record: Mapping[str, Any],
        pieces: Mapping[str, Mapping[str, int]] | None = None,
    ) -> bool:
        """Write one chunk durably; False if it was there already (the first one stays).

        All is written under a temporary name and flushed (data, then record, then folders), then renamed.

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
        with self.writing(f"{stage}/{key[:12]}"):
            try:
                _write_group(draft, arrays, dims, record, pieces or {})
                flush_group(draft)
                return self._publish(draft, stage, key)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def _publish(self, draft: Path, stage: str, key: str) -> bool:
        parent = self.path / stage
        if not parent.is_dir() or parent not in _flushed_entries:
            parent.mkdir(exist_ok=True)  # perhaps by another process, which has not flushed it yet
            flush(self.path)
            _flushed_entries.add(parent)
        try:
            os.rename(draft, parent / key)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        flush(parent)
        return True

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
        """Parameters, coordinates, input keys, statistics and digests of a chunk."""
        with self.reading(stage, key):
            return record_in((self.location(stage, key) / "zarr.json").read_text())

    def arrays(self, stage: str, key: str) -> dict[str, StoredArray]:
        """All arrays of a chunk, to be read in part."""
        return {name: StoredArray(self, stage, key, name) for name in self.record(stage, key)["arrays"]}

    def load(self, stage: str, key: str) -> dict[str, np.ndarray]:
        """All arrays of a chunk, checked against their checksums."""
        return {name: array[...] for name, array in self.arrays(stage, key).items()}

    @contextmanager
    def reading(self, stage: str, key: str) -> Iterator[None]:
        """Turn what a damaged chunk raises while it is read into one clear message."""
        try:
            yield
        except InputError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise DamagedChunkError(
                f"chunk {stage}/{key[:12]} of store {self.path} is damaged ({error}): "
                f"`quarkline verify --remove {self.path}` drops it, and the next run computes it again"
            ) from error

    def open(self, stage: str, key: str) -> zarr.Group:
        """The chunk's Zarr group, read-only: a part of a large array can be read alone."""
        return open_group(self.location(stage, key))

    def remove(self, stage: str, key: str) -> None:
        """Take a chunk away: it vanishes at once, its bytes a little later."""
        grave = self.temporary / f"removed-{uuid.uuid4().hex}"
        with self.writing(f"{stage}/{key[:12]}"):
            os.rename(self.location(stage, key), grave)
        shutil.rmtree(grave, ignore_errors=True)

    def sweep(self) -> int:
        """Remove what interrupted writers left; returns how many. Only for the one driver of the store.

        A checkpoint stays unless its chunk was committed since.
        """
        drafts = list(self.temporary.iterdir()) if self.temporary.is_dir() else []
        for draft in drafts:
            shutil.rmtree(draft, ignore_errors=True)
        for folder in checkpoints(self.checkpoints):
            if self.has(folder.parent.name, folder.name):
                remove_checkpoint(folder)
        return len(drafts)


def _mark() -> str:
    return json.dumps({"format": FORMAT})


def _write_group(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, tuple[str, ...]],
    record: Mapping[str, Any],
    pieces: Mapping[str, Mapping[str, int]],
) -> None:
    digests = {
        name: {"digest": array_digest(array), "dims": list(dims[name])} for name, array in arrays.items()
    }
    group = create_group(folder, {**record, "arrays": digests})
    for name, array in arrays.items():
        write_array(group, name, array, dims[name], pieces.get(name))


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
        known = self.store.record(self.stage, self.key)["arrays"]
        with self.store.reading(self.stage, self.key):
            if self.name not in known:
                raise KeyError(f"its record names no array {self.name}")
            return self.store.open(self.stage, self.key)[self.name]

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

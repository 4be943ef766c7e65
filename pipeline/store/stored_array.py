"""An array of a committed chunk, of which parts are read when they are asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import zarr


class ChunkReader(Protocol):
    """A store, as far as its arrays need it."""

    def open(self, stage: str, key: str) -> zarr.Group:
        """The chunk's Zarr group, read-only."""

    def reading(self, stage: str, key: str) -> AbstractContextManager[None]:
        """Turn what a damaged chunk raises while it is read into one clear message."""


@dataclass(frozen=True)
class StoredArray:
    """An array of a committed chunk, read by slices: ``vectors[:4]``; ``np.asarray(vectors)`` reads all.

    Nothing is kept in memory. A piece that is damaged or gone raises DamagedChunkError when it is read.
    """

    store: ChunkReader
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

    def __array__(self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)

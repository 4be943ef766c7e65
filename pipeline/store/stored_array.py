"""An array of a committed chunk, of which only the pieces that are asked for are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

if TYPE_CHECKING:
    from pipeline.store.store import Store


@dataclass(frozen=True)
class StoredArray:
    """Reads like an array, by slices: ``vectors[:4]``, or ``np.asarray(vectors)`` for all of it.

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
        return tuple(self._array.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
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

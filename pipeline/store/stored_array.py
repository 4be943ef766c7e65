"""An array of a committed chunk, of which parts are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class StoredArray:
    """An array of a committed chunk, read by slices: ``vectors[:4]``; ``np.asarray(vectors)`` reads all.

    Nothing is kept in memory. A piece that is damaged or gone raises DamagedChunkError when it is read.
    """

    open: Callable[[], zarr.Group]
    """Opens its chunk."""
    reading: Callable[[], AbstractContextManager[None]]
    """Turns what a damaged chunk raises while it is read into one clear message."""
    name: str

    @cached_property
    def _array(self) -> zarr.Array:
        group = self.open()
        with self.reading():
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
        with self.reading():
            return np.asarray(array[part])

    def __array__(self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)

"""Arrays in a Zarr v3 group on disk: how they are cut into pieces, written, and read in part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.abc.store import ByteRequest
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

PIECE_BYTES = 16 << 20
"""Larger arrays are cut into pieces of at most this size, which are written and read side by side."""

FLAT = {"name": "default", "separator": "."}
"""Pieces lie side by side in the array's folder: each folder fewer is a flush fewer."""


class Readable(Protocol):
    """A NumPy array, or one on disk of which parts are read by slices of its first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""

    def __getitem__(self, part: Any) -> np.ndarray: ...


class _WholeStore(LocalStore):
    """A folder in which a piece whose file is gone is an error: by itself it would read as zeros."""

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2].partition(".")[0] == "c":
            raise ValueError(f"piece {key} is gone")
        return value


def open_group(folder: Path) -> zarr.Group:
    """The group in a folder, read-only."""
    return zarr.open_group(_WholeStore(folder, read_only=True), mode="r")


def create_group(folder: Path, attributes: Mapping[str, Any]) -> zarr.Group:
    """Make a group of format 3 with its attributes."""
    return zarr.create_group(LocalStore(folder), attributes=dict(attributes), zarr_format=3)


def record_in(text: str) -> dict[str, Any]:
    """The record in a group's metadata; ValueError where it is none."""
    content = json.loads(text)
    record: Any = content.get("attributes") if isinstance(content, dict) else None
    arrays = record.get("arrays") if isinstance(record, dict) else None
    if not isinstance(arrays, dict) or any("digest" not in (array or ()) for array in arrays.values()):
        raise ValueError("its record does not give its arrays and their digests")
    return record


def write_array(
    group: zarr.Group,
    name: str,
    array: np.ndarray,
    dims: tuple[str, ...] | None = None,
    pieces: Mapping[str, int] | None = None,
) -> None:
    """Add an array; `pieces` is how many entries a piece has at most along some of `dims`.

    The array is copied piece by piece, never as a whole, however it lies in memory.
    """
    target = group.create_array(
        name,
        shape=array.shape,
        dtype=array.dtype,
        chunks=piece_shape(array, [(pieces or {}).get(dim) for dim in dims or [""] * array.ndim]),
        compressors=Crc32cCodec(),
        chunk_key_encoding=FLAT,
        dimension_names=dims,
        config={"write_empty_chunks": True},
    )
    target[...] = array


def piece_shape(array: np.ndarray, asked: list[int | None]) -> tuple[int, ...]:
    """Shape of the pieces of an array: as asked, and cut on along the first axes until one is not too large.

    asked: the most entries of a piece along each axis, None where nothing was said.
    """
    shape = [max(1, min(n, most or n)) for n, most in zip(array.shape, asked, strict=True)]
    for axis, extent in enumerate(shape):
        row = array.itemsize * prod(shape[axis + 1 :])
        shape[axis] = max(1, min(extent, PIECE_BYTES // row))
        if row <= PIECE_BYTES:
            break
    return tuple(shape)


def array_digest(array: Readable) -> str:
    """SHA-256 of dtype, shape and bytes of an array, of which one slab at a time is in memory."""
    summed = sha256(f"{array.dtype.str}{array.shape}".encode())
    for slab in _slabs(array):
        summed.update(np.ascontiguousarray(slab).reshape(-1).view(np.uint8).data)
    return summed.hexdigest()


def _slabs(array: Readable) -> Iterator[np.ndarray]:
    """An array in memory as it lies there if it can be; else slabs along the first axis, of whole pieces."""
    if isinstance(array, np.ndarray) and (array.flags.c_contiguous or not array.ndim):
        yield array
        return
    if not array.shape:
        yield array[...]
        return
    rows = getattr(array, "chunks", (1,))[0]
    row = max(1, array.dtype.itemsize * prod(array.shape[1:]))
    rows *= max(1, PIECE_BYTES // (rows * row))
    for first in range(0, array.shape[0], rows):
        yield array[first : first + rows]

"""Arrays in a Zarr v3 group, in a folder or in one file: how they are cut into pieces, written, and read."""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from pipeline.store.errors import StoreError
from pipeline.store.plain_files import json_object, plain
from pipeline.store.record import RECORD, RECORD_BYTES, Facts, sealed
from pipeline.store.typed import expect, fits

PIECE_BYTES = 16 << 20
"""Larger arrays are cut into pieces of at most this size, which are written and read side by side."""

SUM_BYTES = 4
"""Of the CRC32C at the end of each piece."""

CODECS = ["bytes", "crc32c"]
"""All that arrays were ever written with: a piece takes as many bytes in its file as in memory, and a sum."""

_are_integers = fits(Sequence[int])

FLAT = {"name": "default", "separator": "."}
"""Pieces lie side by side in the array's folder: each folder fewer is a flush fewer."""

Sums = Mapping[str, int | str]
"""CRC32C of each piece, SHA-256 of the metadata of each array, by the file's name."""


def recorded_sums(record: Facts) -> Sums | None:
    """The sums of a chunk's files by its record; None for one of format 1, which does not have them."""
    sums = {}
    for name, array in record["arrays"].items():
        if "pieces" not in array:
            return None
        sums[f"{name}/{RECORD}"] = array["metadata"]
        sums.update({f"{name}/{piece}": crc for piece, crc in array["pieces"].items()})
    return sums


def _is_piece(key: str) -> bool:
    return key.rpartition("/")[2].partition(".")[0] == "c"


def _sum_of(key: str, content: Buffer) -> int | str:
    """CRC32C of a piece (its last four bytes), SHA-256 of an array's metadata."""
    if _is_piece(key):
        return int.from_bytes(content[-4:].to_bytes(), "little")
    return sha256(content.to_bytes()).hexdigest()


class ArrayMetadata(TypedDict):
    """Metadata of an array as this package writes them, and what of them decides how much is read."""

    shape: Sequence[int]
    data_type: str
    chunk_grid: Facts
    codecs: Sequence[Facts]


@dataclass(frozen=True)
class _ArrayForm:
    """The size of an array that is to be read: pieces, and bytes of each with its sum."""

    pieces: int
    piece_bytes: int

    @classmethod
    def of(cls, key: str, content: bytes) -> _ArrayForm:
        """The form by an array's metadata; key: their file.

        Raises:
            ValueError: nothing that this package wrote: other codecs may unpack to any size.
        """
        facts: Any = expect(json_object(content), ArrayMetadata, key)
        shape, piece = facts["shape"], facts["chunk_grid"].get("configuration", {}).get("chunk_shape", ())
        word, codecs = facts["data_type"], [codec.get("name") for codec in facts["codecs"]]
        known = word == "bool" or re.fullmatch("(u?int|float|complex)[0-9]{1,3}", word)
        if not known or codecs != CODECS or facts.get("storage_transformers"):
            raise ValueError(f"{key} says that its numbers are {word:.40} by {codecs!s:.80}")
        if (
            not _are_integers(piece)
            or len(shape) != len(piece)
            or min(shape, default=0) < 0
            or min(piece, default=1) < 1
        ):
            raise ValueError(f"{key} has shape {shape!s:.80} in pieces of {piece!s:.80}")
        pieces = prod(-(-n // length) for n, length in zip(shape, piece, strict=True))
        return cls(pieces, np.dtype(word).itemsize * prod(piece) + SUM_BYTES)


class CheckedStore(WrapperStore[Store]):
    """Files of a group, which are compared with its record (`sums`) when they are read.

    No more is read, or made room for, than an array's metadata say and its files hold.
    """

    def __init__(self, store: Store, sums: Sums | None) -> None:
        super().__init__(store)
        self._sums = sums
        self._forms: dict[str, _ArrayForm] = {}
        """By array."""

    def _with_store(self, store: Store) -> CheckedStore:
        return CheckedStore(store, self._sums)

    async def _form(self, key: str, content: bytes) -> _ArrayForm:
        """The form by an array's metadata, all pieces of which there are."""
        form, folder = _ArrayForm.of(key, content), key.removesuffix(RECORD)
        if self._sums is None:
            files = {name async for name in self._store.list_prefix(folder)}
        else:
            files = {name for name in self._sums if name.startswith(folder)}
        if form.pieces != (held := len(files - {key})):
            raise ValueError(
                f"{key} says that there are {form.pieces} pieces, and {form.pieces - held} are gone"
            )
        if form.piece_bytes > PIECE_BYTES + SUM_BYTES and self._sums is not None:
            raise ValueError(f"{key} has pieces of {form.piece_bytes} bytes")
        return form

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Content of a file, if it is what the record names: Zarr compares a piece with its own CRC32C."""
        if isinstance(self._store, LocalStore):
            with suppress(FileNotFoundError):
                plain(self._store.root / key)
        array, _, file = key.partition("/")
        form = self._forms.get(array) if file != RECORD else None
        most = form.piece_bytes if form else RECORD_BYTES
        value = await super().get(key, prototype, byte_range or RangeByteRequest(0, most + 1))
        if value is None and form:
            raise ValueError(f"piece {key} is gone")  # by itself it would read as zeros
        if value is None or byte_range is not None:
            return value
        if len(value) > most or (form and len(value) < most):
            raise ValueError(f"{key} has {'more' if len(value) > most else 'less'} than {most} bytes")
        if not file:
            return value
        if self._sums is not None and _sum_of(key, value) != self._sums.get(key):
            raise ValueError(f"{key} is not the one that its record names")
        if file == RECORD:
            self._forms[array] = await self._form(key, value.to_bytes())
        return value


class _ExistingFolder(LocalStore):
    """A folder that is written and never made anew: it vanishes with the store that it is in."""

    async def set(self, key: str, value: Buffer) -> None:
        await asyncio.to_thread(self._write, self.root / key, value)

    def _write(self, path: Path, value: Buffer) -> None:
        if path.parent != self.root:
            path.parent.mkdir(exist_ok=True)  # not its parents, as the base class does
        path.write_bytes(value.as_buffer_like())


class _SummingStore(WrapperStore[Store]):
    """A group that is written, with the sums of its files."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._sums: dict[str, int | str] = {}

    async def set(self, key: str, value: Buffer) -> None:
        if key != RECORD:
            self._sums[key] = _sum_of(key, value)
        await super().set(key, value)

    def of_array(self, name: str) -> Facts:
        """The entries that stand in the record of one array."""
        files = ((key.partition("/"), total) for key, total in self._sums.items())
        inside = {file: total for (array, _, file), total in files if array == name}
        return {"metadata": inside.pop(RECORD), "pieces": dict(sorted(inside.items()))}


def _packed(files: Mapping[str, Buffer]) -> bytes:
    """A group as an uncompressed ZIP file (its metadata are deflated), equal for equal content."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for key in sorted(files):
            how = zipfile.ZIP_STORED if _is_piece(key) else zipfile.ZIP_DEFLATED
            entry = zipfile.ZipInfo(key)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[key].to_bytes(), how)
    return target.getvalue()


def read_group(store: Store, sums: Sums | None) -> zarr.Group:
    """A group, read-only, compared with the sums of its record.

    Metadata of arrays are those beside them, which are checked: copies of them in the group's count nothing.
    """
    return zarr.open_group(CheckedStore(store, sums), mode="r", zarr_format=3, use_consolidated=False)


def open_group(folder: Path, sums: Sums | None = None) -> zarr.Group:
    """The group in a folder."""
    return read_group(LocalStore(folder, read_only=True), sums)


def open_packed(content: Mapping[str, bytes], sums: Sums | None) -> zarr.Group:
    """The group in a file that was read and unpacked."""
    buffer = zarr.core.buffer.default_buffer_prototype().buffer
    held = {name: buffer.from_bytes(part) for name, part in content.items()}
    return read_group(MemoryStore(held, read_only=True), sums)


def create_group(store: Path | Store, attributes: Facts) -> zarr.Group:
    """Make a group of format 3 with its attributes."""
    target = _ExistingFolder(store) if isinstance(store, Path) else store
    return zarr.create_group(target, attributes=dict(attributes), zarr_format=3)


Pieces = Mapping[str, Mapping[str, int]]
"""Per array, how many entries along some dimensions lie in a piece that is read alone."""


@dataclass(frozen=True)
class GroupContent:
    """Arrays by name, on the host, with the names of their dimensions, their record and how they are cut."""

    arrays: Mapping[str, np.ndarray]
    dims: Mapping[str, tuple[str, ...]]
    record: Facts
    pieces: Pieces

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def write_packed(content: GroupContent) -> bytes:
    """A group as the content of one file, its record sealed."""
    files: dict[str, Buffer] = {}
    _write_sealed(MemoryStore(files), content)
    return _packed(files)


def write_folder(folder: Path, content: GroupContent) -> None:
    """A group as a folder, its record sealed."""
    _write_sealed(_ExistingFolder(folder), content)


def _write_sealed(files: Store, content: GroupContent) -> None:
    store = _SummingStore(files)
    group = create_group(store, {})
    about = {}
    for name, array in content.arrays.items():
        dims = content.dims[name]
        write_array(group, name, array, dims, content.pieces.get(name))
        about[name] = {"digest": array_digest(array), "dims": list(dims), **store.of_array(name)}
    record = sealed({**content.record, "arrays": about})
    if (nbytes := len(json.dumps(record))) > RECORD_BYTES // 2:  # it is written with spaces
        raise StoreError(f"the record of a chunk takes {nbytes} bytes: keep large statistics in an array")
    group.update_attributes(record)


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


def array_digest(array: np.ndarray | zarr.Array) -> str:
    """SHA-256 of dtype, shape and bytes of an array, of which one slab at a time is in memory."""
    summed = sha256(f"{array.dtype.str}{array.shape}".encode())
    for slab in _slabs(array):
        summed.update(np.ascontiguousarray(slab).reshape(-1).view(np.uint8).data)
    return summed.hexdigest()


def _slabs(array: np.ndarray | zarr.Array) -> Iterator[np.ndarray]:
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

"""Files of a packed chunk, a ZIP archive, as they are read: for its record alone, nobody waits for Zarr."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from io import BytesIO

from pipeline.store.record import RECORD_BYTES

FILE_BYTES = 128 << 20
"""Of the file of a packed chunk, at most, as it is read: far more than is packed into one."""


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a packed group; ValueError where it is not one, or its own checksums differ."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            _refuse_bomb(archive.infolist(), len(content))
            return {entry.filename: _entry(archive, entry) for entry in archive.infolist()}
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind: the content is in memory, only it can be the cause
        raise ValueError(f"its file is not whole: {error or type(error).__name__}") from error


def _refuse_bomb(entries: Sequence[zipfile.ZipInfo], nbytes: int) -> None:
    """Raise ValueError where the entries of a file of so many bytes take more than they may."""
    stored = [entry.file_size for entry in entries if entry.compress_type == zipfile.ZIP_STORED]
    packed = [entry.file_size for entry in entries if entry.compress_type == zipfile.ZIP_DEFLATED]
    if len(stored) + len(packed) < len(entries):
        raise ValueError("it is packed in a way in which none is written")
    if sum(stored) > nbytes or sum(packed) > RECORD_BYTES:
        raise ValueError(f"its entries say that they take {sum(stored) + sum(packed)} bytes")


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """What an entry holds, of which no more is unpacked than it says; ValueError where there is more."""
    with archive.open(entry) as file:
        part = file.read(entry.file_size)
        if len(part) < entry.file_size or file.read(1):
            raise ValueError(f"{entry.filename} does not take the bytes that it says")
    return part

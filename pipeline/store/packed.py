"""Files of a packed chunk, a ZIP archive, as they are read: for its record alone, nobody waits for Zarr."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from struct import Struct

from pipeline.store.record import RECORD, RECORD_BYTES

ENTRIES = 10_000
"""Of a packed chunk, at most; Python takes 1 KB for each before anything is known of it."""


_LOCAL = Struct("<4s22xHH")
"""Of the header before an entry: signature, and the lengths of its name and of what follows that."""


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a packed group; ValueError where it is not one, or its own checksums differ."""
    try:
        if content.count(b"PK\1\2") > ENTRIES:  # which begins each
            raise ValueError(f"it has more than {ENTRIES} entries")
        with zipfile.ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
        _refuse_bomb(entries, len(content))
        return {entry.filename: _entry(content, entry) for entry in entries}
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind: the content is in memory, only it can be the cause
        raise ValueError(f"its file is not whole: {error or type(error).__name__}") from error


def _refuse_bomb(entries: Sequence[zipfile.ZipInfo], nbytes: int) -> None:
    """Raise ValueError where the entries of a file of so many bytes are not a chunk's, or take too much."""
    names = {entry.filename for entry in entries}
    if len(names) < len(entries) or RECORD not in names:
        raise ValueError("it names a file twice" if RECORD in names else "it has no record")
    held = stored = packed = 0
    for entry in entries:
        held += entry.compress_size
        if entry.compress_type == zipfile.ZIP_STORED:
            stored += entry.file_size
        elif entry.compress_type == zipfile.ZIP_DEFLATED:
            packed += entry.file_size
        else:
            raise ValueError("it is packed in a way in which none is written")
    if held > nbytes or stored > nbytes or packed > RECORD_BYTES:
        raise ValueError(f"its entries say that they take {max(held, stored + packed)} bytes")


def _entry(content: bytes, entry: zipfile.ZipInfo) -> bytes:
    """What an entry holds, of which no more is unpacked than it says; ValueError where it differs.

    All is in memory: read as a file, by `zipfile`, each entry would take three times as long.
    """
    begin = entry.header_offset
    signature, name, more = _LOCAL.unpack_from(content, begin)
    begin += _LOCAL.size
    if signature != b"PK\x03\x04" or content[begin : begin + name] != entry.filename.encode():
        raise ValueError(f"{entry.filename} is not where its directory says")
    begin += name + more
    part = content[begin : begin + entry.compress_size]
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        part = zlib.decompressobj(-zlib.MAX_WBITS).decompress(part, entry.file_size + 1)
    if len(part) != entry.file_size:
        raise ValueError(f"{entry.filename} does not take the bytes that it says")
    if zlib.crc32(part) != entry.CRC:
        raise ValueError(f"{entry.filename} does not have the checksum that it says")
    return part

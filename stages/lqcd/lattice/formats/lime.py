"""LIME containers: the records of a file, and writing one.

Format (USQCD c-lime, www.lqcd.org/ildg): each record has a 144-byte big-endian header (uint32 magic, uint16
version, uint16 flags, uint64 bytes of payload, char[128] type) and a payload padded to 8 bytes. Bit 15 of the
flags begins a message, bit 14 ends it; a file may hold several messages.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stages.lqcd.lattice.formats.binary import damaged, opened

MAGIC = 0x456789AB
HEADER = struct.Struct(">IHHQ128s")
BEGIN, END = 0x8000, 0x4000
TEXT_LIMIT = 1 << 20
"""Bytes of a text record that are read at most; QCDml documents are far shorter."""


@dataclass(frozen=True)
class Record:
    """A LIME record: its type, where its payload lies in the file, and the number of its message."""

    kind: str
    offset: int
    length: int
    message: int = 0

    @property
    def end(self) -> int:
        """Byte after its payload and padding."""
        return self.offset + (self.length + 7) // 8 * 8


def records(path: Path) -> list[Record]:
    """All records of a LIME file, from their headers only; InputError where the chain of headers breaks.

    A few bytes after the last record that begin no header are passed over: `remarks` tells of them.
    """
    chain: list[Record] = []
    position = 0
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        while position < size and not (chain and _is_stray(file, position)):
            record = _record_at(path, file, position, size, chain[-1].message if chain else 0)
            chain.append(record)
            position = record.end
    return chain


def remarks(path: Path) -> tuple[str, ...]:
    """Oddities of a LIME file that are no fault: bytes after its last record."""
    stray = path.stat().st_size - max((record.end for record in records(path)), default=0)
    return (f"has {stray} stray byte{'s' * (stray > 1)} after its last record",) if stray > 0 else ()


def _is_stray(file: BinaryIO, position: int) -> bool:
    """True if less than a header follows, and it does not begin as one: no record has lost its end here."""
    file.seek(position)
    rest = file.read(HEADER.size)
    return len(rest) < HEADER.size and not rest.startswith(struct.pack(">I", MAGIC)[: len(rest)])


def _record_at(path: Path, file: BinaryIO, position: int, size: int, message: int) -> Record:
    """The record that begins at a position; message: number of that before it."""
    file.seek(position)
    header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise damaged(path, f"truncated: it ends at byte {size} amid a LIME header")
    magic, _, flags, length, kind = HEADER.unpack(header)
    if magic != MAGIC:
        raise damaged(path, f"byte {position} should begin a LIME record with {MAGIC:#x}, found {magic:#x}")
    name, offset = kind.split(b"\0")[0].decode("ascii", "replace"), position + HEADER.size
    record = Record(name, offset, length, message + bool(flags & BEGIN))
    if record.offset + length > size:
        what = (
            f"truncated: its record {record.kind!r} takes {length} bytes, the file has {size - record.offset}"
        )
        raise damaged(path, what)
    return record


def text(path: Path, record: Record) -> str:
    """The payload of a text record, without the NULs that some writers append."""
    with opened(path) as file:
        file.seek(record.offset)
        return file.read(min(record.length, TEXT_LIMIT)).rstrip(b"\0").decode("utf-8", "replace")


def element(xml: str, name: str) -> str | None:
    """Text of the first XML element of that name, None without it.

    Like QIO it looks for the tags alone: user records hold text that no XML parser accepts.
    """
    match = re.search(rf"<(?:\w+:)?{name}(?:\s[^<>]*)?>([^<]*)<", xml)
    return match[1].strip() if match else None


def write_record(file: BinaryIO, kind: str, payload: bytes, flags: int = 0) -> None:
    """Append a record with its payload."""
    begin_record(file, kind, len(payload), flags)
    file.write(payload)
    pad(file)


def begin_record(file: BinaryIO, kind: str, length: int, flags: int = 0) -> None:
    """Append the header of a record; its payload of `length` bytes and `pad` follow."""
    file.write(HEADER.pack(MAGIC, 1, flags, length, kind.encode("ascii")))


def pad(file: BinaryIO) -> None:
    """Pad the payload just written to 8 bytes."""
    file.write(b"\0" * (-file.tell() % 8))


def is_lime(head: bytes) -> bool:
    """True if a file that begins with these bytes is a LIME container."""
    return head[:4] == struct.pack(">I", MAGIC)

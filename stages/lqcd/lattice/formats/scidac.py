"""SciDAC (QIO) files: fields of colour matrices or colour vectors in a LIME container.

A field is announced by a private record ('scidac-private-record-xml': data type, precision F or D, bytes per
datum, data per site) and followed by its data ('scidac-binary-data', or 'ildg-binary-data' where the file is
ILDG as well) and, mostly, by its checksum. Data are big-endian in lexicographic order. Source: USQCD QIO;
verified on MILC's and Chroma's files. The record XML of a USQCD lattice states plaquette and link trace, both
normalised to 1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.formats import lime
from stages.lqcd.lattice.formats.binary import WHOLE_NUMBER, damaged, fault, lattice_of, warn
from stages.lqcd.lattice.formats.gauge_file import (
    LINK_TRACE,
    PLAQUETTE,
    UNVERIFIED,
    Check,
    Claim,
    checksum_checks,
    printed_claim,
)
from stages.lqcd.lattice.formats.site_data import SCIDAC, read_sites
from stages.lqcd.lattice.geometry import Lattice

MATRIX, VECTOR = 18, 6
"""Reals of a colour matrix and of a colour vector."""

LINKS_REALS = 4 * MATRIX
"""Reals of a site's four links."""

TMLQCD = "xlf-info"
"""Record in which tmLQCD describes the data that follow, as lines of text."""

BINARY = ("scidac-binary-data", "ildg-binary-data")
CHECKSUM = "scidac-checksum"
TEXTS = {
    "scidac-private-file-xml": "file_xml",
    "scidac-private-record-xml": "record_xml",
    "scidac-record-xml": "user_xml",
    "ildg-format": "ildg_xml",
    TMLQCD: "xlf_info",
}
"""Records that describe data, and what a `Message` calls them."""


@dataclass(frozen=True)
class Message:
    """The records that describe one block of binary data; '' for texts that the file lacks."""

    path: Path
    data: lime.Record
    file_xml: str
    record_xml: str
    user_xml: str
    ildg_xml: str
    xlf_info: str = ""
    checksums: tuple[tuple[int, int], ...] = ()
    """Sums in all its checksum records, which should be equal."""


@dataclass(frozen=True)
class StoredField:
    """Position and layout of a field in a LIME file: `count` data of `reals` reals per site."""

    message: Message
    lattice: Lattice
    precision: int
    reals: int
    count: int

    def read(self, field: NDArray) -> tuple[Check, ...]:
        """Fill ``[parity, site, ...]`` from the file; the checks of its SciDAC checksum, if it has one."""
        word = f">f{self.precision // 8}"
        message = self.message
        computed = read_sites(message.path, message.data.offset, self.lattice, word, field, SCIDAC)
        return sum((checksum_checks(SCIDAC, stated, computed) for stated in message.checksums), ())


@dataclass(frozen=True, eq=False)
class ScidacField:
    """A field of a SciDAC file.

    values: ``[count, parity, site, 3, 3]`` for colour matrices (four of them are links), ``[parity, site, 3,
    count]`` for colour vectors; complex64 or complex128 as in the file, values unchanged. description: its
    user record.
    """

    path: Path
    lattice: Lattice
    values: NDArray
    description: str
    checks: tuple[Check, ...]
    remarks: tuple[str, ...] = ()
    """What its reader noticed beside that."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the file for its reader, none of which is a fault."""
        return (*(() if self.checks else (UNVERIFIED,)), *self.remarks)


def read_field(path: str | Path, record: int = 0) -> ScidacField:
    """Field number `record` of a SciDAC file, with colour matrices or colour vectors at each site.

    Raises InputError if the file is damaged, has no such field, or its checksum does not match. Warns
    (UserWarning, and in `notes`) of a field without its checksum record, and of stray bytes.
    """
    path, stored = Path(path), field_layout(path, record)
    values, by_site = empty(stored)
    checks = stored.read(by_site)
    for check in checks:
        if not check.ok:
            raise damaged(path, str(check))
    field = ScidacField(path, stored.lattice, values, stored.message.user_xml, checks, lime.remarks(path))
    warn(path, field.notes)
    return field


def field_layout(path: str | Path, record: int = 0) -> StoredField:
    """Lattice and layout of a field, by headers only; raises InputError as `read_field`."""
    fields = [message for message in messages(Path(path)) if message.record_xml]
    if not 0 <= record < len(fields):
        what = f"has {len(fields)} SciDAC fields, number {record} was asked for"
        raise fault(Path(path), what, "count them from 0")
    return stored_field(fields[record])


def messages(path: Path) -> list[Message]:
    """Every block of binary data of a LIME file with the records that describe it; reads no data.

    Texts come before their data, or after the last data. A checksum belongs to the data in its message. If
    that has no data, or several blocks, it belongs to the block before it, or to the next one if that has a
    checksum already.
    """
    chain = lime.records(path)
    data = Counter(record.message for record in chain if record.kind in BINARY)
    blocks: list[Message] = []
    texts: dict[str, str] = {}
    waiting: list[tuple[int, int]] = []
    for record in chain:
        if record.kind in BINARY:
            blocks.append(replace(_message(path, record, texts), checksums=tuple(waiting)))
            texts = {kind: xml for kind, xml in texts.items() if kind == "scidac-private-file-xml"}
            waiting = []
        elif record.kind == CHECKSUM:
            stated = _checksum(path, lime.text(path, record))
            alone = data[record.message] == 1
            last = blocks[-1] if blocks else None
            if last and (last.data.message == record.message if alone else not last.checksums):
                blocks[-1] = replace(last, checksums=(*last.checksums, stated))
            else:
                waiting.append(stated)
        elif record.kind == TMLQCD or record.kind.endswith(("-xml", "-format")):
            texts[record.kind] = lime.text(path, record)
    if blocks:
        after, last = _message(path, blocks[-1].data, texts), blocks[-1]
        missing = {name: getattr(after, name) for name in TEXTS.values() if not getattr(last, name)}
        blocks[-1] = replace(last, **missing, checksums=(*last.checksums, *waiting))
    return blocks


def stored_field(message: Message) -> StoredField:
    """The layout of a field of colour matrices or vectors; InputError for another one."""
    path, xml = message.path, message.record_xml
    precision = {"F": 32, "D": 64}.get(required(path, xml, "precision"), 0)
    datum_bytes, count = (integer(path, xml, name) for name in ("typesize", "datacount"))
    if not _is_field(xml):
        what = "its SciDAC record holds global or hypercube data"
        raise fault(path, what, "use a file of one lattice field")
    if not precision or datum_bytes * 8 not in (MATRIX * precision, VECTOR * precision):
        datatype = lime.element(xml, "datatype")
        what = f"its SciDAC record is of type {datatype!r} with {datum_bytes} bytes per datum"
        raise fault(path, what, "fields of colour matrices and colour vectors (3 colours) can be read")
    lattice = dimensions(message)
    expect_length(message, lattice, datum_bytes * count)
    return StoredField(message, lattice, precision, datum_bytes * 8 // precision, count)


def stored_links(message: Message) -> StoredField | None:
    """The layout of a message whose sites have the size of four colour matrices; None for another one.

    However the record divides a site: some codes call a complex number the datum and count 36 of them.
    """
    xml = message.record_xml
    precision = {"F": 32, "D": 64}.get(lime.element(xml, "precision") or "")
    sizes = [lime.element(xml, name) or "" for name in ("typesize", "datacount")]
    if precision is None or not _is_field(xml) or not all(map(WHOLE_NUMBER.fullmatch, sizes)):
        return None
    if int(sizes[0]) * int(sizes[1]) != LINKS_REALS * precision // 8:
        return None
    lattice = dimensions(message)
    expect_length(message, lattice, LINKS_REALS * precision // 8)
    return StoredField(message, lattice, precision, MATRIX, 4)


def layout(message: Message) -> str:
    """Type, precision, number and size of a site's data, by the private record."""
    names = ("datatype", "precision", "datacount", "typesize")
    kind, precision, count, size = (lime.element(message.record_xml, name) for name in names)
    return f"type {kind}, precision {precision}, {count} data of {size} bytes per site"


def dimensions(message: Message) -> Lattice:
    """The lattice that the private file record states."""
    path, xml = message.path, message.file_xml
    text = required(path, xml, "dims")
    if (lime.element(xml, "volfmt") or "0") != "0":
        raise fault(path, "its SciDAC volume is spread over several files", "join it with QIO's qio-convert")
    if not all(map(WHOLE_NUMBER.fullmatch, text.split())):
        raise damaged(path, f"its SciDAC header states the dimensions {text!r}")
    return lattice_of(path, tuple(int(part) for part in text.split()))


def usqcd_claims(message: Message, precision: int) -> tuple[Claim, ...]:
    """Plaquette and link trace of a USQCD lattice's record XML, where the writer knew them."""
    if "usqcdInfo" not in message.user_xml:
        return ()
    stated = ((PLAQUETTE, "plaq"), (LINK_TRACE, "linktr"))
    texts = ((name, lime.element(message.user_xml, tag)) for name, tag in stated)
    return tuple(
        printed_claim(name, text, precision) for name, text in texts if text is not None and text != "missing"
    )


def required(path: Path, xml: str, name: str) -> str:
    """Text of an XML element that must be there."""
    text = lime.element(xml, name)
    if text is None:
        raise damaged(path, f"a record of its header lacks <{name}>")
    return text


def integer(path: Path, xml: str, name: str) -> int:
    """Value of an XML element that must be there and be a whole number."""
    text = required(path, xml, name)
    if not WHOLE_NUMBER.fullmatch(text):
        raise damaged(path, f"a record of its header states <{name}> {text!r}, which is no whole number")
    return int(text)


def expect_length(message: Message, lattice: Lattice, site_bytes: int) -> None:
    """Raise InputError unless the message's data have the length of such a lattice."""
    expected, length = lattice.volume * site_bytes, message.data.length
    if expected != length:
        takes = f"a {lattice} lattice with {site_bytes} bytes per site takes {expected} bytes"
        raise damaged(message.path, f"{takes}, its data have {length}")


def _message(path: Path, data: lime.Record, texts: dict[str, str]) -> Message:
    named: dict[str, Any] = {name: texts.get(kind, "") for kind, name in TEXTS.items()}
    return Message(path, data, **named)


def _checksum(path: Path, xml: str) -> tuple[int, int]:
    try:
        return int(required(path, xml, "suma"), 16), int(required(path, xml, "sumb"), 16)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise damaged(path, f"its SciDAC checksum record is unreadable: {xml!r}") from None


def _is_field(xml: str) -> bool:
    """True if a private record announces a lattice field: not global data, nor that of a hypercube."""
    return (lime.element(xml, "recordtype") or lime.element(xml, "globaldata") or "0") == "0"


def empty(stored: StoredField) -> tuple[NDArray, NDArray]:
    """A field to fill, in this library's order of axes, and its view ``[parity, site, datum, ...]``."""
    dtype = np.complex64 if stored.precision == 32 else np.complex128
    sites = (2, stored.lattice.half_volume)
    if stored.reals == MATRIX:
        values = np.empty((stored.count, *sites, 3, 3), dtype)
        return values, np.moveaxis(values, 0, 2)
    values = np.empty((*sites, 3, stored.count), dtype)
    return values, np.moveaxis(values, 3, 2)

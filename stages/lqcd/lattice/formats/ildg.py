"""ILDG gauge configurations, and gauge fields in SciDAC files: both are colour matrices in a LIME container.

Format (ILDG binary file format 1.1): record 'ildg-format' with precision and extents, record
'ildg-binary-data' with the links, big-endian, sites lexicographic, directions x y z t, rows then columns.
`write_ildg` adds QIO's records, so that SciDAC software reads the file as well, and the SciDAC checksum.
tmLQCD's record 'xlf-info' before them states the mean plaquette, normalised to 1: `plaquette = 5.8807e-01`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats import lime
from stages.lqcd.lattice.formats.binary import created, damaged, fault, lattice_of
from stages.lqcd.lattice.formats.gauge_file import (
    PLAQUETTE,
    Check,
    Claim,
    links_to_write,
    printed_claim,
    time_stamp,
)
from stages.lqcd.lattice.formats.scidac import (
    LINKS_REALS,
    MATRIX,
    TMLQCD,
    Message,
    StoredField,
    dimensions,
    empty,
    expect_length,
    integer,
    layout,
    messages,
    stored_links,
    usqcd_claims,
)
from stages.lqcd.lattice.formats.site_data import SCIDAC, encoded_slabs
from stages.lqcd.lattice.geometry import Lattice

STATED_PLAQUETTE = re.compile(r"\bplaquette\s*=[ \t]*([^\s,;]*)")
FIELD = "su3gauge"
LETTERS = {32: "F", 64: "D"}
"""Precisions as SciDAC's records name them."""
XML = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass(frozen=True)
class LimeGaugeFile:
    """A gauge field in a LIME container; its header has been read."""

    stored: StoredField
    format: str
    metadata: dict[str, str]
    remarks: tuple[str, ...] = ()
    """What is odd about it and no fault."""

    @property
    def path(self) -> Path:
        return self.stored.message.path

    @property
    def lattice(self) -> Lattice:
        return self.stored.lattice

    @property
    def claims(self) -> tuple[Claim, ...]:
        precision, info = self.stored.precision, self.metadata.get(TMLQCD, "")
        stated = STATED_PLAQUETTE.search(info)
        of_tmlqcd = (printed_claim(PLAQUETTE, stated[1], precision),) if stated else ()
        return (*usqcd_claims(self.stored.message, precision), *of_tmlqcd)

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links, by_site = empty(self.stored)
        return links, self.stored.read(by_site)


def open_lime(path: Path) -> LimeGaugeFile:
    """The one gauge field of an ILDG or SciDAC file; InputError if there is none, or several."""
    blocks = messages(path)
    gauge = [stored for stored in map(_gauge_field, blocks) if stored]
    if len(gauge) != 1:
        what = f"a LIME file with {len(gauge)} gauge fields"
        if gauge or not any(message.record_xml for message in blocks):
            what += f" (its records: {', '.join(sorted({record.kind for record in lime.records(path)}))})"
        else:
            what += f": it states {layout(blocks[0])}; links take 4 data of 72 (F) or 144 (D) bytes"
        raise fault(path, what, "use a file of one gauge field")
    message = gauge[0].message
    texts = {
        "record": message.user_xml,
        "file": message.file_xml,
        "ildg-format": message.ildg_xml,
        TMLQCD: message.xlf_info,
    }
    metadata = {name: xml for name, xml in texts.items() if xml}
    format = "ILDG" if message.ildg_xml else "SciDAC"
    return LimeGaugeFile(gauge[0], format, metadata, lime.remarks(path))


def _gauge_field(message: Message) -> StoredField | None:
    """The layout of a message that holds four colour matrices per site; None for another one."""
    return _ildg_links(message) if message.data.kind == "ildg-binary-data" else stored_links(message)


def _ildg_links(message: Message) -> StoredField:
    """The layout that 'ildg-format' states; where SciDAC's records are there too, they must say the same."""
    path, xml = message.path, message.ildg_xml
    if not xml:
        raise damaged(path, "its ILDG data come without an 'ildg-format' record")
    kind = lime.element(xml, "field") or FIELD
    if kind != FIELD:
        raise fault(path, f"its ILDG header states <field> {kind!r}", f"fields of kind {FIELD} can be read")
    lattice = lattice_of(path, tuple(integer(path, xml, name) for name in ("lx", "ly", "lz", "lt")))
    precision = integer(path, xml, "precision")
    if precision not in (32, 64):
        raise damaged(
            path, f"its ILDG header states a precision of {precision} bits, which is neither 32 nor 64"
        )
    expect_length(message, lattice, LINKS_REALS * precision // 8)
    letter = lime.element(message.record_xml, "precision")
    if letter and letter != LETTERS[precision]:
        raise damaged(path, f"its ILDG header states {precision} bits, its SciDAC header precision {letter}")
    if message.file_xml and dimensions(message) != lattice:
        raise damaged(path, f"its ILDG header states {lattice}, its SciDAC header {dimensions(message)}")
    return StoredField(message, lattice, precision, MATRIX, 4)


def write_ildg(path: str | Path, links: NDArray, lattice: Lattice, precision: int) -> None:
    """Write links ``[mu, parity, site, 3, 3]`` as an ILDG file of 32 or 64 bits with SciDAC's checksum.

    The file appears whole or not at all. Raises InputError for links of another shape, a precision that is
    neither 32 nor 64, or a folder that cannot be written to.
    """
    path = Path(path)
    stored = links_to_write(path, links, lattice, precision)
    with created(path) as file:
        encode_ildg(file, stored, lattice)


def encode_ildg(file: BinaryIO, links: NDArray, lattice: Lattice) -> None:
    """Write links complex64 or complex128 ``[mu, parity, site, 3, 3]`` into an open file in ILDG's format."""
    _write_headers(file, lattice, 4 * links.itemsize)
    encode_data(file, "ildg-binary-data", np.moveaxis(links, 0, 2), lattice)


def encode_data(file: BinaryIO, kind: str, field: NDArray, lattice: Lattice, flags: int = 0) -> None:
    """Write a complex field ``[parity, site, ...]`` as a record of its data and one of their checksum."""
    lime.begin_record(file, kind, field.nbytes, flags)
    partials = []
    for first_site, raw in encoded_slabs(field, lattice, f">f{field.itemsize // 2}"):
        file.write(raw.data)
        partials.append(SCIDAC.partial(raw, first_site, ">"))
    lime.pad(file)
    lime.write_record(file, "scidac-checksum", _checksum_xml(*SCIDAC.total(partials)), lime.END)


def _write_headers(file: BinaryIO, lattice: Lattice, precision: int) -> None:
    lime.write_record(file, "scidac-private-file-xml", _file_xml(lattice), lime.BEGIN)
    lime.write_record(
        file, "scidac-file-xml", f"{XML}<title>quarkline gauge configuration</title>".encode(), lime.END
    )
    lime.write_record(file, "scidac-private-record-xml", _record_xml(precision), lime.BEGIN)
    lime.write_record(file, "scidac-record-xml", f"{XML}<title>gauge links</title>".encode())
    lime.write_record(file, "ildg-format", _ildg_xml(lattice, precision))


def _file_xml(lattice: Lattice) -> bytes:
    dims = " ".join(str(extent) for extent in lattice.extents)
    body = f"<version>1.1</version><spacetime>4</spacetime><dims>{dims} </dims><volfmt>0</volfmt>"
    return f"{XML}<scidacFile>{body}</scidacFile>".encode()


def _record_xml(precision: int) -> bytes:
    letter = LETTERS[precision]
    body = (
        f"<version>1.1</version><date>{time_stamp()}</date><recordtype>0</recordtype>"
        f"<datatype>QDP_{letter}3_ColorMatrix</datatype><precision>{letter}</precision><colors>3</colors>"
        f"<typesize>{MATRIX * precision // 8}</typesize><datacount>4</datacount>"
    )
    return f"{XML}<scidacRecord>{body}</scidacRecord>".encode()


def _ildg_xml(lattice: Lattice, precision: int) -> bytes:
    lengths = zip(("lx", "ly", "lz", "lt"), lattice.extents, strict=True)
    extents = "".join(f"<{name}>{extent}</{name}>" for name, extent in lengths)
    namespaces = (
        'xmlns="http://www.lqcd.org/ildg" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:schemaLocation="http://www.lqcd.org/ildg/filefmt.xsd"'
    )
    body = f"<version>1.0</version><field>{FIELD}</field><precision>{precision}</precision>{extents}"
    return f"{XML}<ildgFormat {namespaces}>{body}</ildgFormat>".encode()


def _checksum_xml(a: int, b: int) -> bytes:
    body = f"<version>1.0</version><suma>{a:x}</suma><sumb>{b:x}</sumb>"
    return f"{XML}<scidacChecksum>{body}</scidacChecksum>".encode()

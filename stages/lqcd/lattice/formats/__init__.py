"""Gauge-field files: ILDG, SciDAC, NERSC, MILC v5, openQCD and DDalphaAMG.

Reading verifies every checksum and header value that the file has and that its links are in SU(3); one
`InputError` names the file, what is wrong and the remedy. Links are returned as stored: reunitarise them
before use.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

from stages.base.errors import InputError
from stages.lqcd.lattice.formats import lime, milc, nersc
from stages.lqcd.lattice.formats.binary import damaged, fault, opened, warn
from stages.lqcd.lattice.formats.gauge_file import (
    HEADER_ONLY,
    Check,
    CheckReport,
    GaugeField,
    GaugeSource,
)
from stages.lqcd.lattice.formats.ildg import LimeGaugeFile, open_lime, write_ildg
from stages.lqcd.lattice.formats.milc import write_milc
from stages.lqcd.lattice.formats.nersc import write_nersc
from stages.lqcd.lattice.formats.openqcd import HEADER, open_plaquette_file
from stages.lqcd.lattice.formats.scidac import ScidacField, read_field
from stages.lqcd.lattice.geometry import Lattice

__all__ = [
    "Check",
    "CheckReport",
    "GaugeField",
    "InputError",
    "ScidacField",
    "check_gauge",
    "read_extents",
    "read_field",
    "read_gauge",
    "write_ildg",
    "write_milc",
    "write_nersc",
]


def read_gauge(path: str | Path, *, wrong_header: bool = False) -> GaugeField:
    """Read a gauge field of any known format, in slabs: peak memory stays below 1.5 times the field.

    wrong_header: accept a plaquette or link trace in the header that the links do not have, where the file
    has a checksum and it is right.

    Raises InputError if the file cannot be read, is truncated or of no known format, if a checksum, plaquette
    or link trace that it states does not match its links, or if they are not in SU(3). Warns (UserWarning,
    and in `notes`) of a LIME file without its checksum record, of a stated value that has no digits to
    compare, of stray bytes after the last record, and of a boundary that a NERSC header states not periodic.
    """
    field = _load(Path(path))
    for check in field.checks:
        if not check.ok and not (wrong_header and check.remedy.endswith(HEADER_ONLY)):
            raise fault(field.path, f"{field.format}, {field.lattice}: {check}", check.remedy)
    warn(field.path, field.notes)
    return field


def check_gauge(path: str | Path) -> CheckReport:
    """Read a gauge field and report on it; a value that does not match is a failed check, not an error.

    Raises InputError if the file cannot be read at all: missing, truncated, of no known format.
    """
    return _load(Path(path)).report()


def read_extents(path: str | Path) -> Lattice:
    """The lattice of a gauge-field file, from its header alone; its size is checked as well.

    Only where the header fits openQCD and DDalphaAMG with different extents are the links read to decide.
    Raises InputError as `read_gauge` does.
    """
    lattices = {source.lattice for source in sources(Path(path))}
    return lattices.pop() if len(lattices) == 1 else read_gauge(path).lattice


def sources(path: Path) -> tuple[GaugeSource, ...]:
    """The file under every format that its header fits: one, or openQCD and DDalphaAMG.

    Reads headers only. Raises InputError if the file cannot be opened, is of no known format, or is
    truncated.
    """
    with opened(path) as file:
        head = file.read(HEADER.size)
    if not head:
        raise damaged(path, "the file is empty")
    if lime.is_lime(head):
        return (open_lime(path),)
    if head.startswith(nersc.BEGINNING):
        return (nersc.open_nersc(path),)
    if order := milc.byte_order(head):
        return (milc.open_milc(path, order),)
    if files := open_plaquette_file(path, head):
        return files
    if told := _stranger(path, head):
        raise fault(path, *told)
    (magic,) = struct.unpack("<I", head[:4].ljust(4, b"\0"))
    known = "ILDG, SciDAC, NERSC, MILC v5, openQCD and DDalphaAMG files can be read"
    raise fault(
        path, f"is not a gauge file in any known format (it begins with {head[:8]!r}, {magic:#010x})", known
    )


PACKED = {
    **{b"\x1f\x8b": "gunzip", b"\x1f\x9d": "uncompress", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz"},
    **{b"\x28\xb5\x2f\xfd": "unzstd", b"\x04\x22\x4d\x18": "unlz4", b"PK\3\4": "unzip"},
}
LFS = b"version https://git-lfs."
OLD_MILC = {59354: "MILC versions 1 to 4", 53546: "MILC of 1996", 0x71626434: "FNAL"}
"""Formats that MILC itself reads and nothing here, by their magic numbers."""


def _stranger(path: Path, head: bytes) -> tuple[str, str] | None:
    """What a file is that cannot be read, and how to convert it; None of an unknown one."""
    if program := next((program for start, program in PACKED.items() if head.startswith(start)), ""):
        return "is compressed", f"unpack it first: {program} {path.name}"
    if head.startswith(LFS):
        return "is a pointer of Git LFS, not the file itself", "fetch that: git lfs pull in its folder"
    if _is_tar(path):
        return "is a tar archive", f"unpack it first: tar -xf {path.name}"
    magic = {int.from_bytes(head[:4], order) for order in ("little", "big")}
    if old := next((name for number, name in OLD_MILC.items() if number in magic), ""):
        return f"is a file of {old}", "convert it by MILC: reload_serial it and save_serial_scidac"
    if open_plaquette_file(path, _swapped(head)):
        remedy = "reverse the bytes of the four 4-byte extents and of each 8-byte number after them"
        return "is an openQCD or DDalphaAMG file in big-endian byte order, and little-endian is read", remedy
    return None


def _is_tar(path: Path) -> bool:
    with opened(path) as file:
        return file.read(262)[257:] == b"ustar"


def _swapped(head: bytes) -> bytes:
    """A header of openQCD in the other byte order."""
    return HEADER.pack(*struct.unpack(">4id", head)) if len(head) == HEADER.size else b""


def _load(path: Path) -> GaugeField:
    """The field, not yet verified; where its header fits two formats, in that which its plaquette fits."""
    candidates = sources(path)
    if len(candidates) == 1:
        return _field(candidates[0])
    misfits = []
    for source in candidates:
        field = _field(source)
        if field.ok:
            return field
        misfits.append(_misfit(field))
        del field  # before the next one is read
    return _field(candidates[misfits.index(min(misfits))])


def _field(source: GaugeSource) -> GaugeField:
    links, checksums = source.load()
    remarks = source.remarks if isinstance(source, LimeGaugeFile | nersc.NerscFile) else ()
    return GaugeField(
        source.path, source.format, source.lattice, links, source.metadata, source.claims, checksums, remarks
    )


def _misfit(field: GaugeField) -> float:
    """Distance of the plaquette from the one that the header states."""
    (claim,) = field.claims
    difference = abs(field.plaquette.total - claim.value)
    return difference if math.isfinite(difference) else math.inf

"""Detection of a gauge-field file's format from its first bytes and its size."""

from __future__ import annotations

import struct
from pathlib import Path

from stages.lqcd.lattice.formats import ddalphaamg, lime, milc, nersc
from stages.lqcd.lattice.formats.binary import damaged, expect_bytes, fault, lattice_of, opened
from stages.lqcd.lattice.formats.ddalphaamg import DDalphaAMGFile
from stages.lqcd.lattice.formats.gauge_file import GaugeSource
from stages.lqcd.lattice.formats.ildg import open_lime
from stages.lqcd.lattice.formats.openqcd import OpenQCDFile
from stages.lqcd.lattice.formats.plaquette_header import HEADER

LARGEST_EXTENT = 4096
"""Four integers up to this one and a plausible plaquette are taken for a header without a magic number."""


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
    order = milc.byte_order(head)
    if order:
        return (milc.open_milc(path, order),)
    return _without_magic(path, head)


def _without_magic(path: Path, head: bytes) -> tuple[GaugeSource, ...]:
    """Readers of openQCD and DDalphaAMG: four extents, in opposite order of x y z, and a plaquette."""
    if len(head) == HEADER.size:
        *extents, plaquette = HEADER.unpack(head)
        if all(1 <= extent <= LARGEST_EXTENT for extent in extents) and abs(plaquette) <= 3.001:
            t, *space = extents
            lattices = [lattice_of(path, (*order, t)) for order in (space, space[::-1])]
            expect_bytes(path, lattices[0], len(head), lattices[0].volume * ddalphaamg.SITE_BYTES)
            return OpenQCDFile(path, lattices[0], plaquette), DDalphaAMGFile(path, lattices[1], plaquette)
    (magic,) = struct.unpack("<I", head[:4].ljust(4, b"\0"))
    known = "ILDG, SciDAC, NERSC, MILC v5, openQCD and DDalphaAMG files can be read"
    raise fault(
        path, f"is no gauge-field file of a known format (it begins with {head[:8]!r}, {magic:#010x})", known
    )

"""MILC version 5 gauge files: a binary header and links in single precision.

Header, in the byte order of the machine that wrote it (the magic number tells): int32 magic 20103, int32 nx
ny nz nt, char[64] time stamp, int32 order (0: lexicographic), uint32 sum29, uint32 sum31. Then sites t, z, y,
x (x fastest), directions x y z t, 3x3 complex float32 by rows. Source: milc-qcd/milc_qcd, generic/io_lat4.c.
Written little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import created, damaged, expect_bytes, fault, lattice_of, opened
from stages.lqcd.lattice.formats.gauge_file import (
    Check,
    Claim,
    checksum_checks,
    links_to_write,
    time_stamp,
)
from stages.lqcd.lattice.formats.site_data import MILC, encoded_slabs, read_links
from stages.lqcd.lattice.geometry import Lattice

MAGIC = 20103
HEADER = "5i64si2I"
SITE_BYTES = 4 * 18 * 4


@dataclass(frozen=True)
class MilcFile:
    """A MILC v5 file; its header has been read."""

    path: Path
    lattice: Lattice
    order: str
    checksum: tuple[int, int]
    metadata: dict[str, str]
    format: str = "MILC v5"
    claims: tuple[Claim, ...] = ()

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        offset = struct.calcsize(self.order + HEADER)
        links, computed = read_links(self.path, offset, self.lattice, f"{self.order}f4", MILC)
        return links, checksum_checks(MILC, self.checksum, computed)


def byte_order(head: bytes) -> str | None:
    """'<' or '>' for a file that begins with MILC's magic number in that byte order, None for another one."""
    return next((order for order in "<>" if head[:4] == struct.pack(f"{order}i", MAGIC)), None)


def open_milc(path: Path, order: str) -> MilcFile:
    """Read the header of a MILC v5 file; InputError if it is truncated or does not fit the file's size."""
    size = struct.calcsize(order + HEADER)
    with opened(path) as file:
        head = file.read(size)
    if len(head) < size:
        raise damaged(path, f"truncated: a MILC header takes {size} bytes, the file has {len(head)}")
    _, *extents, stamp, site_order, sum29, sum31 = struct.unpack(order + HEADER, head)
    if site_order != 0:
        what = f"its MILC header states site order {site_order}: a checkpoint by nodes"
        raise fault(path, what, "save it in serial or parallel format")
    lattice = lattice_of(path, tuple(extents))
    expect_bytes(path, lattice, size, lattice.volume * SITE_BYTES)
    metadata = {"time stamp": stamp.split(b"\0")[0].decode("ascii", "replace")}
    return MilcFile(path, lattice, order, (sum29, sum31), metadata)


def write_milc(path: str | Path, links: NDArray, lattice: Lattice) -> None:
    """Write links ``[mu, parity, site, 3, 3]`` as a MILC v5 file, in single precision whatever theirs is.

    The file appears whole or not at all. Raises InputError for links of another shape or a folder that cannot
    be written to.
    """
    path = Path(path)
    stored = links_to_write(path, links, lattice, 32)
    with created(path) as file:
        encode_milc(file, stored, lattice)


def encode_milc(file: BinaryIO, links: NDArray, lattice: Lattice) -> None:
    """Write links complex64 ``[mu, parity, site, 3, 3]`` into an open file in MILC's format.

    The checksums stand before the links that they are of: the header is written last.
    """
    start, stamp = file.tell(), time_stamp().encode()
    file.write(bytes(struct.calcsize("<" + HEADER)))
    partials = []
    for first_site, raw in encoded_slabs(np.moveaxis(links, 0, 2), lattice, "<f4"):
        file.write(raw.data)
        partials.append(MILC.partial(raw, first_site, "<"))
    end = file.tell()
    file.seek(start)
    file.write(struct.pack("<" + HEADER, MAGIC, *lattice.extents, stamp, 0, *MILC.total(partials)))
    file.seek(end)

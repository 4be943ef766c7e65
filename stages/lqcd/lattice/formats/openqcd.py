"""Gauge files of openQCD ("universal" or CERN format) and of DDalphaAMG: one header without a magic number.

int32 extents t and space, double plaquette, then links in double precision, all little-endian. The plaquette
is the sum of Re tr P over all plaquettes divided by 6 V: three times the normalised one. What the header does
not tell is the order of space and of the links:

- openQCD: N0 N1 N2 N3 (t x y z); for the odd points (t + x + y + z odd) in the order t, x, y, z with z
  fastest the eight links U(x,+0), U(x-0,0), U(x,1), U(x-1,1), ... for the directions t x y z, 3x3 by rows.
  U(x,mu) carries x+mu to x. Source: openQCD 2.4, modules/archive/archive.c (export_cnfg); Grid reads the
  same, parallelIO/OpenQcdIO.h.
- DDalphaAMG: T Z Y X; sites lexicographic (t, z, y, x; x fastest), directions T Z Y X, 3x3 matrices by rows.
  Verified on the configurations of DDalphaAMG (conf/).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import expect_bytes, lattice_of, read_slabs
from stages.lqcd.lattice.formats.gauge_file import HEADER_TOLERANCE, PLAQUETTE, Check, Claim
from stages.lqcd.lattice.formats.site_data import read_sites
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

HEADER = struct.Struct("<4id")
SITE_BYTES = 4 * 18 * 8
OPENQCD_DIRECTIONS = (3, 0, 1, 2)
"""openQCD's directions t x y z in our numbering."""
LARGEST_EXTENT = 4096
"""Four integers up to this one and a plausible plaquette are taken for a header without a magic number."""


@dataclass(frozen=True)
class PlaquetteFile:
    """A file whose header has been read; `stated_plaquette` is three times the mean plaquette."""

    path: Path
    lattice: Lattice
    stated_plaquette: float

    @property
    def metadata(self) -> dict[str, str]:
        return {"plaquette": repr(self.stated_plaquette)}

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (Claim(PLAQUETTE, self.stated_plaquette / 3, HEADER_TOLERANCE[64]),)


@dataclass(frozen=True)
class OpenQCDFile(PlaquetteFile):
    """An openQCD file."""

    format: str = "openQCD"

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links = np.empty((4, 2, self.lattice.half_volume, 3, 3), np.complex128)

        def use(first_row: int, raw: NDArray[np.uint8]) -> None:
            matrices = raw.view("<c16").astype(np.complex128, copy=False).reshape(-1, 4, 2, 3, 3)
            points = _odd_points(first_row, len(raw), self.lattice)
            for slot, mu in enumerate(OPENQCD_DIRECTIONS):
                links[mu, ODD, self.lattice.site(points)] = matrices[:, slot, 0]
                before = points - np.eye(4, dtype=int)[mu]
                links[mu, EVEN, self.lattice.site(before)] = matrices[:, slot, 1]

        row_points = self.lattice.extents[2] // 2
        rows = self.lattice.half_volume // row_points
        read_slabs(self.path, HEADER.size, rows, row_points * 2 * SITE_BYTES, use)
        return links, ()


@dataclass(frozen=True)
class DDalphaAMGFile(PlaquetteFile):
    """A DDalphaAMG file."""

    format: str = "DDalphaAMG"

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links = np.empty((4, 2, self.lattice.half_volume, 3, 3), np.complex128)
        directions_tzyx = np.moveaxis(links, 0, 2)[:, :, ::-1]
        read_sites(self.path, HEADER.size, self.lattice, "<f8", directions_tzyx)
        return links, ()


def open_plaquette_file(path: Path, head: bytes) -> tuple[OpenQCDFile, DDalphaAMGFile] | None:
    """The file as either format; None unless `head` is four extents and a plaquette. Raises InputError."""
    if len(head) < HEADER.size:
        return None
    *extents, plaquette = HEADER.unpack(head)
    if not all(1 <= extent <= LARGEST_EXTENT for extent in extents) or not abs(plaquette) <= 3.001:
        return None
    t, *space = extents
    txyz, tzyx = (lattice_of(path, (*order, t)) for order in (space, space[::-1]))
    expect_bytes(path, txyz, len(head), txyz.volume * SITE_BYTES)
    return OpenQCDFile(path, txyz, plaquette), DDalphaAMGFile(path, tzyx, plaquette)


def _odd_points(first_row: int, rows: int, lattice: Lattice) -> NDArray[np.int64]:
    """Coordinates (x, y, z, t) ``[point, 4]`` of the odd points of rows along z, in the order of the file."""
    lx, ly, lz, _ = lattice.extents
    row, half_z = np.indices((rows, lz // 2)).reshape(2, -1)
    row += first_row
    y, x, t = row % ly, row // ly % lx, row // (ly * lx)
    z = 2 * half_z + (x + y + t + 1) % 2
    return np.stack([x, y, z, t], axis=-1)

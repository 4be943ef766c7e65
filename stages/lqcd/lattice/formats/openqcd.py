"""openQCD gauge files ("universal" or CERN format): the eight links at every odd point, in double precision.

int32 N0 N1 N2 N3 (t x y z), double plaquette, then for the odd points (t + x + y + z odd) in the order t, x,
y, z with z fastest: U(x,+0), U(x-0,0), U(x,1), U(x-1,1), ... for the directions t x y z, 3x3 complex double
by rows; everything little-endian. U(x,mu) carries x+mu to x. The plaquette is the sum of Re tr P over all
plaquettes divided by 6 N0 N1 N2 N3: three times the normalised one. Source: openQCD 2.4,
modules/archive/archive.c (export_cnfg); Grid reads the same, parallelIO/OpenQcdIO.h.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import read_slabs
from stages.lqcd.lattice.formats.gauge_file import Check
from stages.lqcd.lattice.formats.plaquette_header import HEADER, PlaquetteHeader
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

POINT_BYTES = 8 * 18 * 8
DIRECTIONS = (3, 0, 1, 2)
"""openQCD's directions t x y z in our numbering."""


@dataclass(frozen=True)
class OpenQCDFile(PlaquetteHeader):
    """An openQCD file; its header has been read."""

    format: str = "openQCD"

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links = np.empty((4, 2, self.lattice.half_volume, 3, 3), np.complex128)

        def use(first_row: int, raw: NDArray[np.uint8]) -> None:
            matrices = raw.view("<c16").astype(np.complex128, copy=False).reshape(-1, 4, 2, 3, 3)
            points = _odd_points(first_row, len(raw), self.lattice)
            for slot, mu in enumerate(DIRECTIONS):
                links[mu, ODD, self.lattice.site(points)] = matrices[:, slot, 0]
                before = points - np.eye(4, dtype=int)[mu]
                links[mu, EVEN, self.lattice.site(before)] = matrices[:, slot, 1]

        row_points = self.lattice.extents[2] // 2
        rows = self.lattice.half_volume // row_points
        read_slabs(self.path, HEADER.size, rows, row_points * POINT_BYTES, use)
        return links, ()


def _odd_points(first_row: int, rows: int, lattice: Lattice) -> NDArray[np.int64]:
    """Coordinates (x, y, z, t) ``[point, 4]`` of the odd points of rows along z, in the order of the file."""
    lx, ly, lz, _ = lattice.extents
    row, half_z = np.indices((rows, lz // 2)).reshape(2, -1)
    row += first_row
    y, x, t = row % ly, row // ly % lx, row // (ly * lx)
    z = 2 * half_z + (x + y + t + 1) % 2
    return np.stack([x, y, z, t], axis=-1)

"""DDalphaAMG gauge files: int32 T Z Y X, double plaquette, links in double precision, all little-endian.

Sites are lexicographic (t, z, y, x; x fastest), directions T Z Y X, 3x3 matrices by rows. The header's
plaquette is the mean over planes of Re tr P, three times the normalised one. Verified on the configurations
of DDalphaAMG (conf/).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.lattice.formats.gauge_file import HEADER_TOLERANCE, PLAQUETTE, Check, Claim
from stages.lattice.formats.lexicographic import read_sites
from stages.lattice.geometry import Lattice

HEADER = struct.Struct("<4id")
SITE_BYTES = 4 * 18 * 8


@dataclass(frozen=True)
class DDalphaAMGFile:
    """A DDalphaAMG file; its header has been read. Its header alone does not tell it from openQCD's."""

    path: Path
    lattice: Lattice
    stated_plaquette: float
    format: str = "DDalphaAMG"

    @property
    def metadata(self) -> dict[str, str]:
        return {"plaquette": repr(self.stated_plaquette)}

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (Claim(PLAQUETTE, self.stated_plaquette / 3, HEADER_TOLERANCE[64]),)

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links = np.empty((4, 2, self.lattice.half_volume, 3, 3), np.complex128)
        directions_tzyx = np.moveaxis(links, 0, 2)[:, :, ::-1]
        read_sites(self.path, HEADER.size, self.lattice, "<f8", directions_tzyx)
        return links, ()

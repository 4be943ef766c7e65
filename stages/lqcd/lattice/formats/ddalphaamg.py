"""DDalphaAMG gauge files: int32 T Z Y X, double plaquette, links in double precision, all little-endian.

Sites are lexicographic (t, z, y, x; x fastest), directions T Z Y X, 3x3 matrices by rows. The header's
plaquette is the mean over planes of Re tr P, three times the normalised one. Verified on the configurations
of DDalphaAMG (conf/).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.gauge_file import Check
from stages.lqcd.lattice.formats.lexicographic import read_sites
from stages.lqcd.lattice.formats.plaquette_header import HEADER, PlaquetteHeader

SITE_BYTES = 4 * 18 * 8


@dataclass(frozen=True)
class DDalphaAMGFile(PlaquetteHeader):
    """A DDalphaAMG file; its header has been read."""

    format: str = "DDalphaAMG"

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links = np.empty((4, 2, self.lattice.half_volume, 3, 3), np.complex128)
        directions_tzyx = np.moveaxis(links, 0, 2)[:, :, ::-1]
        read_sites(self.path, HEADER.size, self.lattice, "<f8", directions_tzyx)
        return links, ()

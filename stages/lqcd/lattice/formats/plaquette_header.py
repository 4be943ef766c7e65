"""The header that openQCD and DDalphaAMG share: extents of t and space, and a plaquette; no magic number.

They order space differently and store links differently; the header alone does not tell them apart.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from stages.lqcd.lattice.formats.gauge_file import HEADER_TOLERANCE, PLAQUETTE, Claim
from stages.lqcd.lattice.geometry import Lattice

HEADER = struct.Struct("<4id")


@dataclass(frozen=True)
class PlaquetteHeader:
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

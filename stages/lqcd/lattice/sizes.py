"""Bytes of fields, for forecasts of memory."""

from __future__ import annotations

from stages.lqcd.lattice.geometry import Lattice

COMPLEX = 16
"""Of a complex128 number."""
MATRIX = 9 * COMPLEX
"""Of a complex128 matrix in colour."""
LINK_FIELDS = 8
"""Gauge fields alive on the host while an operator's links are made: levels of smearing, staples, results."""


def links_bytes(lattice: Lattice) -> int:
    """A gauge field of complex128 links."""
    return 4 * MATRIX * lattice.volume


def half_field_bytes(lattice: Lattice, components: int) -> int:
    """A complex128 field on one parity with so many components a site, 3 or 12."""
    return components * COMPLEX * lattice.half_volume

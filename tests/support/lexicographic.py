"""Plain lexicographic arrays (t, z, y, x, ...) to and from quarkline's parity-ordered fields."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def to_parity(array: NDArray, lattice: Lattice) -> NDArray:
    """Lexicographic ``[t, z, y, x, ...]`` to parity-ordered ``[parity, site, ...]``; values unchanged."""
    x, y, z, t = lattice.extents
    if array.shape[:4] != (t, z, y, x):
        raise InputError(
            f"a lexicographic field on {lattice} has shape (t z y x ...) = {(t, z, y, x)}, got {array.shape}"
        )
    flat = array.reshape(lattice.volume, *array.shape[4:])
    return np.stack([flat[lattice.lexicographic(parity)] for parity in (EVEN, ODD)])


def to_lexicographic(field: NDArray, lattice: Lattice) -> NDArray:
    """Parity-ordered ``[parity, site, ...]`` to ``[t, z, y, x, ...]``; the inverse of `to_parity`."""
    if field.shape[:2] != (2, lattice.half_volume):
        raise InputError(f"a field on {lattice} has shape (2, {lattice.half_volume}, ...), got {field.shape}")
    flat = np.empty((lattice.volume, *field.shape[2:]), field.dtype)
    for parity in (EVEN, ODD):
        flat[lattice.lexicographic(parity)] = field[parity]
    return flat.reshape(*reversed(lattice.extents), *field.shape[2:])


def gauge_to_parity(links: NDArray, lattice: Lattice) -> NDArray:
    """Lexicographic links ``[t, z, y, x, mu, 3, 3]`` to ``[mu, parity, site, 3, 3]``."""
    return np.ascontiguousarray(np.moveaxis(to_parity(links, lattice), 2, 0))


def gauge_to_lexicographic(links: NDArray, lattice: Lattice) -> NDArray:
    """Links ``[mu, parity, site, 3, 3]`` to lexicographic ``[t, z, y, x, mu, 3, 3]``."""
    return to_lexicographic(np.moveaxis(links, 0, 2), lattice)

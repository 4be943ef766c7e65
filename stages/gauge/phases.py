"""Fermion boundary conditions and the Kawamoto-Smit phases of staggered fermions.

Both are signs multiplied into links: boundary signs before smearing, phases after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stages.kernels.dispatch import Array, array_module
from stages.lattice.errors import InputError
from stages.lattice.geometry import EVEN, ODD, Lattice, T, X, Y

Boundary = tuple[str, str, str, str]
"""'periodic' or 'antiperiodic' for x, y, z, t."""


def parse_boundary(boundary: str | Sequence[str]) -> Boundary:
    """Boundary conditions in x, y, z, t; one word alone is that of t, space periodic. Raises InputError."""
    words = ("periodic", "periodic", "periodic", boundary) if isinstance(boundary, str) else tuple(boundary)
    if len(words) != 4:
        raise InputError(f"boundary must be one word (for t) or four (x y z t), got {len(words)}: {words}")
    for direction, word in zip("xyzt", words, strict=True):
        if word not in ("periodic", "antiperiodic"):
            raise InputError(
                f"boundary must be 'periodic' or 'antiperiodic', got {word!r} for direction {direction}"
            )
    x, y, z, t = words
    return x, y, z, t


def with_boundary(links: Array, lattice: Lattice, boundary: str | Sequence[str]) -> Array:
    """A copy of the links ``[mu, parity, site, 3, 3]`` with boundary conditions as signs.

    The sign is on the links that leave the last slice of an antiperiodic direction; for thin links, before
    any smearing. Raises InputError (`parse_boundary`).
    """
    signed = links.copy()
    for mu, word in enumerate(parse_boundary(boundary)):
        if word == "antiperiodic":
            for parity in (EVEN, ODD):
                last = lattice.coordinates(parity)[:, mu] == lattice.extents[mu] - 1
                signed[mu, parity, array_module(links).asarray(last)] *= -1
    return signed


@cache
def staggered_phases(lattice: Lattice) -> NDArray[np.int8]:
    """MILC's phases eta_mu(x), +-1, int8 ``[mu, parity, site]``, read-only.

    eta_x = (-1)^t, eta_y = (-1)^(t+x), eta_z = (-1)^(t+x+y), eta_t = 1. No eta_mu depends on x_mu.
    """
    site = np.stack([lattice.coordinates(parity) for parity in (EVEN, ODD)])
    t, x, y = site[..., T], site[..., X], site[..., Y]
    phases = (1 - 2 * (np.stack([t, t + x, t + x + y, 0 * t]) % 2)).astype(np.int8)
    phases.flags.writeable = False
    return phases


def with_phases(links: Array, lattice: Lattice, out: Array | None = None) -> Array:
    """The links ``[mu, parity, site, 3, 3]`` (thin, fat or long) times eta_mu(x); `out` may be `links`."""
    xp = array_module(links)
    phases = xp.asarray(staggered_phases(lattice), dtype=links.real.dtype)
    return xp.multiply(links, phases[..., None, None], out=out)

"""Fermion boundary conditions and the Kawamoto-Smit phases of staggered fermions.

Both are signs multiplied into links: boundary signs before smearing, phases after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.base.errors import InputError
from stages.lqcd.kernels import link_fields
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.lattice.geometry import Lattice

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


def with_boundary(
    links: Array,
    lattice: Lattice,
    boundary: str | Sequence[str],
    out: Array | None = None,
    parity: int | None = None,
) -> Array:
    """The links ``[mu, parity, site, 3, 3]`` with boundary conditions as signs; `out` may be `links`.

    The sign is on the links that leave the last slice of an antiperiodic direction; for thin links, before
    any smearing. parity: as for `stages.lqcd.kernels.link_fields.boundary_signs`. Raises InputError
    (`parse_boundary`).
    """
    out = field_like(links) if out is None else out
    directions = [mu for mu, word in enumerate(parse_boundary(boundary)) if word == "antiperiodic"]
    link_fields.boundary_signs(links, lattice, directions, out, parity)
    return out


def with_phases(links: Array, lattice: Lattice, out: Array | None = None, parity: int | None = None) -> Array:
    """The links ``[mu, parity, site, 3, 3]`` (thin, fat or long) times eta_mu(x); `out` may be `links`.

    parity: as for `stages.lqcd.kernels.link_fields.boundary_signs`.

    eta_x = (-1)^t, eta_y = (-1)^(t+x), eta_z = (-1)^(t+x+y), eta_t = 1. No eta_mu depends on x_mu.
    """
    out = field_like(links) if out is None else out
    link_fields.staggered_phases(links, lattice, out, parity)
    return out

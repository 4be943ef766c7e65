"""Field strength and clover term (Sheikholeslami-Wohlert) of a gauge field.

    F_{mu nu} = (Q_{mu nu} - Q_{mu nu}^dag) / 8,   C = (i/4) sum_{mu, nu} c_{mu nu} sigma_{mu nu} F_{mu nu}

with Q the sum of the four plaquettes in the plane that start and end at x, the one along +mu, +nu first, as
in Chroma. sigma commutes with gamma5, so that C is two Hermitian 6x6 matrices at each site.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from stages.lqcd.kernels import clover as kernels
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like, zeros_like
from stages.lqcd.kernels.gamma import sigma
from stages.lqcd.lattice.geometry import Lattice, T

PLANES = tuple(combinations(range(4), 2))
"""(mu, nu) with mu < nu."""


def field_strength(links: Array, lattice: Lattice, parity: int, mu: int, nu: int) -> Array:
    """F_{mu nu}, anti-Hermitian ``[site, 3, 3]`` of one parity, of links ``[mu, parity, site, 3, 3]``.

    Boundary signs in the links cancel in every plaquette; leaves that cross a Dirichlet boundary, whose links
    are zero, vanish.
    """
    f = field_like(links, (lattice.half_volume, 3, 3))
    kernels.field_strength(links, lattice, parity, mu, nu, f)
    return f


def clover_term(links: Array, lattice: Lattice, parity: int, spatial: float, temporal: float) -> Array:
    """C(x), Hermitian ``[site, chirality, 6, 6]``, index 3 * (spin % 2) + colour in each chirality.

    parity: of the sites x. spatial, temporal: c_{mu nu} of the planes without t and with it; both csw on an
    isotropic lattice.
    """
    term = zeros_like(links, (lattice.half_volume, 2, 6, 6))
    for mu, nu in PLANES:
        spins = 0.5j * (temporal if nu == T else spatial) * sigma(mu, nu)  # twice i/4: mu > nu adds the same
        blocks = np.stack([spins[:2, :2], spins[2:, 2:]])
        kernels.add_clover(term, field_strength(links, lattice, parity, mu, nu), blocks)
    return term

"""Field strength and clover term (Sheikholeslami-Wohlert) of a gauge field.

    F_{mu nu} = (Q_{mu nu} - Q_{mu nu}^dag) / 8,   C = (i/4) sum_{mu, nu} c_{mu nu} sigma_{mu nu} F_{mu nu}

with Q the sum of the four plaquettes in the plane that start and end at x, the one along +mu, +nu first, as
in Chroma. sigma commutes with gamma5, so that C is two Hermitian 6x6 matrices at each site.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.fields import empty_field, zero_field
from stages.lqcd.kernels.gamma import sigma
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T

PLANES = tuple(combinations(range(4), 2))
"""(mu, nu) with mu < nu."""


def field_strength(links: Array, lattice: Lattice, mu: int, nu: int) -> Array:
    """F_{mu nu}, anti-Hermitian ``[parity, site, 3, 3]``, of links ``[mu, parity, site, 3, 3]``.

    Boundary signs in the links cancel in every plaquette; leaves that cross a Dirichlet boundary, whose links
    are zero, vanish.
    """
    xp = array_module(links)
    f = empty_field((2, lattice.half_volume, 3, 3), links.dtype, xp)
    for parity in (EVEN, ODD):
        q = _clover_leaves(links, lattice, parity, mu, nu)
        f[parity] = (q - _dagger(q)) / 8
    return f


def clover_term(links: Array, lattice: Lattice, spatial: float, temporal: float) -> Array:
    """C(x), Hermitian ``[parity, site, chirality, 6, 6]``, index 3 * (spin % 2) + colour in each chirality.

    spatial, temporal: c_{mu nu} of the planes without t and with it; both csw on an isotropic lattice.
    """
    xp = array_module(links)
    term = zero_field((2, lattice.half_volume, 2, 6, 6), links.dtype, xp)
    for mu, nu in PLANES:
        f = field_strength(links, lattice, mu, nu)
        spins = 0.5j * (temporal if nu == T else spatial) * sigma(mu, nu)  # twice i/4: mu > nu adds the same
        for chirality in range(2):
            block = xp.asarray(spins[2 * chirality : 2 * chirality + 2, 2 * chirality : 2 * chirality + 2])
            outer = xp.einsum("rs,pxab->pxrasb", block.astype(links.dtype), f)
            term[:, :, chirality] += outer.reshape(2, lattice.half_volume, 6, 6)
    return term


def _clover_leaves(links: Array, lattice: Lattice, parity: int, mu: int, nu: int) -> Array:
    """Q_{mu nu} at the sites x of `parity`."""
    xp = array_module(links)

    def link(direction: int, *steps: tuple[int, int]) -> Array:
        """U_direction at x moved by `steps` (direction, hops)."""
        sites, at = slice(None), parity
        for step, hops in steps:
            table = xp.asarray(lattice.neighbour(at, step, hops))
            # neighbours of the sites reached so far: those tables are on the parity where the walk stands
            sites, at = table[sites], 1 - at
        return links[direction, at][sites]

    up_mu, down_mu, up_nu, down_nu = (mu, 1), (mu, -1), (nu, 1), (nu, -1)
    first = link(mu) @ link(nu, up_mu) @ _dagger(link(mu, up_nu)) @ _dagger(link(nu))
    second = link(nu) @ _dagger(link(mu, up_nu, down_mu)) @ _dagger(link(nu, down_mu)) @ link(mu, down_mu)
    third = (
        _dagger(link(mu, down_mu))
        @ _dagger(link(nu, down_mu, down_nu))
        @ link(mu, down_mu, down_nu)
        @ link(nu, down_nu)
    )
    fourth = _dagger(link(nu, down_nu)) @ link(mu, down_nu) @ link(nu, up_mu, down_nu) @ _dagger(link(mu))
    return first + second + third + fourth


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)


def identity_plus(term: Array, constant: float) -> Array:
    """Matrices constant + C ``[..., 6, 6]``, a new array."""
    return term + constant * array_module(term).eye(6, dtype=np.dtype(term.dtype))

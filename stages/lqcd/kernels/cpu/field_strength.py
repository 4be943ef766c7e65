"""NumPy: gathers and batched products of 3x3 matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.geometry import Lattice


def field_strength(links: NDArray, lattice: Lattice, parity: int, mu: int, nu: int, out: NDArray) -> None:
    q = _clover_leaves(links, lattice, parity, mu, nu)
    out[...] = (q - _dagger(q)) / 8


def add_clover(term: NDArray, strength: NDArray, spins: NDArray[np.complex128]) -> None:
    for chirality, block in enumerate(spins.astype(term.dtype)):
        outer = np.einsum("rs,xab->xrasb", block, strength)
        term[:, chirality] += outer.reshape(-1, 6, 6)


def _clover_leaves(links: NDArray, lattice: Lattice, parity: int, mu: int, nu: int) -> NDArray:
    """Q_{mu nu} at the sites x of `parity`."""

    def link(direction: int, *steps: tuple[int, int]) -> NDArray:
        """U_direction at x moved by `steps` (direction, hops)."""
        sites: Any = slice(None)
        at = parity
        for step, hops in steps:
            # neighbours of the sites reached so far: those tables are on the parity where the walk stands
            sites, at = lattice.neighbour(at, step, hops)[sites], 1 - at
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


def _dagger(matrices: NDArray) -> NDArray:
    return matrices.conj().swapaxes(-1, -2)

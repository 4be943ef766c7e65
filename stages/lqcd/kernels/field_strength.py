"""Field strength and clover term of links ``[mu, parity, site, 3, 3]``, complex64 or complex128."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice


def field_strength(links: Array, lattice: Lattice, parity: int, mu: int, nu: int, out: Array) -> None:
    """``out = (Q - Q^dag) / 8``, Q the sum of the four plaquettes in the plane that start and end at x.

    The one along +mu, +nu is the first. `out` is anti-Hermitian ``[site, 3, 3]`` of the sites x of `parity`.
    Raises InputError.
    """
    if mu == nu or not {mu, nu} <= {0, 1, 2, 3}:
        raise InputError(f"a plane is two different directions out of 0, 1, 2, 3, got {mu} and {nu}")
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), links.dtype)
    check_array("out", out, (lattice.half_volume, 3, 3), links.dtype)
    kernel("field_strength.field_strength", type(links))(links, lattice, parity, mu, nu, out)


def add_clover(term: Array, strength: Array, spins: NDArray[np.complex128]) -> None:
    """``term += spins x F``: Hermitian ``[site, chirality, 6, 6]``, index 3 * (spin % 2) + colour.

    spins: of each chirality, ``[chirality, 2, 2]`` on the host. Raises InputError.
    """
    check_array("F", strength, (len(term), 3, 3), term.dtype)
    check_array("the clover term", term, (len(term), 2, 6, 6), strength.dtype)
    kernel("field_strength.add_clover", type(term))(term, strength, spins)

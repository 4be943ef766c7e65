"""Stout smearing of gauge links (arXiv:hep-lat/0311018)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import smearing
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import copied, zeros_like
from stages.lqcd.lattice.geometry import Lattice

ALL_DIRECTIONS, SPATIAL_DIRECTIONS = (0, 1, 2, 3), (0, 1, 2)


def stout_links(
    links: Array,
    lattice: Lattice,
    rho: float,
    steps: int,
    directions: Sequence[int] = ALL_DIRECTIONS,
) -> Array:
    """Links after `steps` of U' = exp(A) U, A the traceless anti-Hermitian part of rho C U^dag.

    C: the sum of the staples of U in the planes of `directions`; links of the other directions stay as they
    are and are in no staple. links: SU(3) ``[mu, parity, site, 3, 3]``, complex128, without boundary signs;
    the result is a new array in SU(3) to rounding. Raises InputError.
    """
    check_smearing(links, lattice, steps)
    smeared = copied(links)
    for _ in range(steps):
        before = copied(smeared)
        for mu in directions:
            staples = zeros_like(smeared[mu])
            for nu in directions:
                if nu != mu:
                    smearing.add_staple(staples, before[mu], before[nu], lattice, mu, nu, rho)
            smearing.smeared_links(staples, before[mu], smeared[mu])
    return smeared


def check_smearing(links: Array, lattice: Lattice, steps: int) -> None:
    """Raises InputError for links that cannot be smeared and for an impossible number of steps."""
    remedy = ": give links.astype(complex)" if links.dtype != np.complex128 else ""
    if links.shape != (4, 2, lattice.half_volume, 3, 3) or links.dtype != np.complex128:
        raise InputError(
            f"links to smear on {lattice} must be complex128 of shape (4, 2, {lattice.half_volume}, 3, 3), "
            f"got {links.dtype} {links.shape}{remedy}"
        )
    if not isinstance(steps, Integral) or steps < 0:
        raise InputError(f"the number of smearing steps is an integer, 0 or more, got {steps}")

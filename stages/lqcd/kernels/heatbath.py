"""Heat bath and over-relaxation of SU(3) links under the Wilson action, S = -beta/3 sum_plaquettes Re tr P.

A link is updated in its three SU(2) subgroups in turn (Cabibbo and Marinari, Phys. Lett. 119B (1982) 387),
by the heat bath of Kennedy and Pendleton (Phys. Lett. 156B (1985) 393) or by over-relaxation. Links of one
direction on sites of one parity are in none of each other's staples: the eight such sets are taken in turn,
the links of a set in parallel. Random numbers are a function of (key, sweep, site, direction, subgroup,
attempt): the same for any number of threads. On a GPU they make the same links up to rounding, until rounding
decides once whether a proposal is accepted: from then on the chains are different ones.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array, check_finite_links
from stages.lqcd.lattice.geometry import Lattice


def heat_bath(links: Array, lattice: Lattice, beta: float, key: tuple[int, int], sweep: int) -> None:
    """One heat-bath sweep over all links, complex128 ``[mu, parity, site, 3, 3]`` in SU(3), in place.

    beta >= 0 (new links are random at 0); key: two 32-bit words of the generator; sweep: a number below
    2^32, a new one for each sweep of a chain. Raises InputError for links that are not finite.
    """
    _check_links(links, lattice)
    check_finite_links(links, lattice)
    kernel("heatbath.heat_bath", type(links))(links, lattice, beta, key, sweep)


def over_relax(links: Array, lattice: Lattice) -> None:
    """One over-relaxation sweep over all links, in place: reflections that leave the action as it is."""
    _check_links(links, lattice)
    kernel("heatbath.over_relax", type(links))(links, lattice)


def _check_links(links: Array, lattice: Lattice) -> None:
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))

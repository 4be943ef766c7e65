"""The canonical links of the dslash kernels: direction-doubled, pre-daggered and signed."""

from __future__ import annotations

from typing import Any

from stages.gauge.hisq import StaggeredLinks
from stages.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS, displacements
from stages.kernels.dispatch import Array, array_module


def doubled_links(links: StaggeredLinks, parity: int, dtype: Any) -> Array:
    """Links into the sites x of `parity`, ``[site, direction, 3, 3]``, as `hisq_dslash.pack` takes them.

    Forward: X_mu(x), the link to x+mu. Backward: -X_mu(x-mu)^dag, the link to x-mu. Likewise the long links
    N_mu with 3 mu. Order of the directions: `stages.kernels.directions`; 16 of them, or 8 where there are no
    long links.
    """
    lattice, xp = links.lattice, array_module(links.fat)
    by_hops = {1: links.fat} if links.long is None else {1: links.fat, 3: links.long}
    directions = NAIVE_DIRECTIONS if links.long is None else HISQ_DIRECTIONS
    doubled = xp.empty((lattice.half_volume, directions, 3, 3), dtype)
    for d, (mu, hops) in enumerate(displacements(directions)):
        field = by_hops[abs(hops)]
        if hops > 0:
            doubled[:, d] = field[mu, parity]
        else:
            origin = xp.asarray(lattice.neighbour(parity, mu, hops))
            doubled[:, d] = -field[mu, 1 - parity][origin].conj().swapaxes(-1, -2)
    return doubled

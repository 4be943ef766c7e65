"""The canonical links of the dslash kernels: direction-doubled, pre-daggered and signed."""

from __future__ import annotations

from typing import Any

from stages.gauge.hisq import StaggeredLinks
from stages.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.kernels.dispatch import Array, array_module, kernels_for


def doubled_links(links: StaggeredLinks, parity: int, dtype: Any) -> Array:
    """Links into the sites x of `parity`, ``[site, direction, 3, 3]``, as `hisq_dslash.pack` takes them.

    Forward: X_mu(x), the link to x+mu. Backward: -X_mu(x-mu)^dag, the link to x-mu. Likewise the long links
    N_mu with 3 mu. Order of the directions: `stages.kernels.directions`; 16 of them, or 8 where there are no
    long links.
    """
    directions = NAIVE_DIRECTIONS if links.long is None else HISQ_DIRECTIONS
    doubled = array_module(links.fat).empty((links.lattice.half_volume, directions, 3, 3), dtype)
    kernels = kernels_for(links.fat)
    kernels.doubled_links.doubled_links(links.fat, links.long, links.lattice, parity, doubled)
    return doubled

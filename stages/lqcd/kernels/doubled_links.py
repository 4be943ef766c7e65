"""Direction-doubled, pre-daggered, signed links."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS, SPATIAL_DIRECTIONS
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice


def doubled_links(fat: Array, long: Array | None, lattice: Lattice, parity: int, out: Array) -> None:
    """out(x) = X_mu(x), -X_mu(x-mu)^dag, N_mu(x), -N_mu(x-3mu)^dag for the sites x of `parity`, every mu.

    fat X, long N complex128 ``[mu, parity, site, 3, 3]``; out complex ``[site, 16, 3, 3]``, 8 without `long`.
    Raises InputError.
    """
    for name, links in (("fat", fat), ("long", long)):
        if links is not None:
            check_array(name, links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))
    directions = NAIVE_DIRECTIONS if long is None else HISQ_DIRECTIONS
    check_array("out", out, (lattice.half_volume, directions, 3, 3), out.dtype)
    kernel("doubled_links.doubled_links", type(fat))(fat, long, lattice, parity, out)


def spatial_links(links: Array, lattice: Lattice, parity: int, out: Array) -> None:
    """out(x) = U_j(x), U_j(x-j)^dag for the sites x of `parity` and j = x, y, z, without signs.

    links complex ``[mu, parity, site, 3, 3]``; out complex ``[site, 6, 3, 3]``. Raises InputError.
    """
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), links.dtype)
    check_array("out", out, (lattice.half_volume, SPATIAL_DIRECTIONS, 3, 3), out.dtype)
    kernel("doubled_links.spatial_links", type(links))(links, lattice, parity, out)

"""The canonical links of the dslash kernels: direction-doubled, pre-daggered and signed."""

from __future__ import annotations

from numpy.typing import DTypeLike

from stages.lqcd.kernels import link_fields
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.lattice.geometry import Lattice


def doubled_links(
    one_hop: Array, three_hops: Array | None, lattice: Lattice, parity: int, dtype: DTypeLike
) -> Array:
    """Links into the sites x of `parity`, ``[site, direction, 3, 3]``, as `pack` of the dslashes takes them.

    Forward: X_mu(x), the link to x+mu. Backward: -X_mu(x-mu)^dag, the link to x-mu. Likewise the long links
    N_mu with 3 mu. Order of the directions: `stages.lqcd.kernels.directions`; 16 of them, or 8 where there
    are no long links. one_hop, three_hops: fields complex128 ``[mu, parity, site, 3, 3]``.
    """
    directions = NAIVE_DIRECTIONS if three_hops is None else HISQ_DIRECTIONS
    doubled = field_like(one_hop, (lattice.half_volume, directions, 3, 3), dtype)
    link_fields.doubled_links(one_hop, three_hops, lattice, parity, doubled)
    return doubled

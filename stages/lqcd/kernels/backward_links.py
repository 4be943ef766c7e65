"""Coarse links against the directions, from those along them: coarse operators are gamma5-Hermitian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array


def add_backward(diagonal: Array, inside: Sequence[Array], links: Array, behind: Array) -> None:
    """``links[s, 2 mu + 1] = mirrored links[behind[s, mu], 2 mu]``, the mirrored L being gamma5 L^H gamma5.

    And ``diagonal += inside[mu] + mirrored inside[mu]`` for each mu, what hops inside of aggregates add to
    the local matrices. diagonal, inside ``[site, 2 k, 2 k]``; links ``[site, 8, 2 k, 2 k]``; behind: the
    neighbour of every site in each direction -mu, int32 ``[site, 4]``. gamma5 is +1 on the first k components
    and -1 on the others. Raises InputError.
    """
    sites, n = diagonal.shape[0], diagonal.shape[-1]
    for name, array in (("diagonal", diagonal), *((f"inside[{mu}]", inside[mu]) for mu in range(4))):
        check_array(name, array, (sites, n, n), links.dtype)
    check_array("links", links, (sites, 8, n, n), links.dtype)
    check_array("behind", behind, (sites, 4), np.dtype(np.int32))
    kernel("backward_links.add_backward", type(links))(diagonal, inside, links, behind)

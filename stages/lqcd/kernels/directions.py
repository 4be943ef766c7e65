"""The order of the dslash's directions, and the kernels' neighbour tables: common to all kernel packages."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice, shared_table

HISQ_DIRECTIONS = 16
"""d = 4 mu + 2 hop + sign: hop 0 the fat link (+-1), hop 1 the long link (+-3); sign 0 forward, 1 back."""

NAIVE_DIRECTIONS = 8
"""d = 2 mu + sign."""

SPATIAL_DIRECTIONS = 6
"""Of the naive ones those within a time slice."""


@cache
def displacements(directions: int) -> tuple[tuple[int, int], ...]:
    """(mu, hops) of each direction in order, hops in {1, -1, 3, -3}; `directions` is 16, 8 or 6."""
    if directions == HISQ_DIRECTIONS:
        return tuple((mu, hops) for mu in range(4) for hops in (1, -1, 3, -3))
    if directions in (NAIVE_DIRECTIONS, SPATIAL_DIRECTIONS):
        return tuple((mu, hops) for mu in range(directions // 2) for hops in (1, -1))
    raise InputError(f"packed links have 16 directions (HISQ), 8 (naive) or 6 (spatial), got {directions}")


@shared_table
def neighbour_table(lattice: Lattice, parity: int, directions: int) -> NDArray[np.int32]:
    """Neighbours of the sites of `parity`, numbered in the opposite one: int32 ``[site, direction]``."""
    columns = [lattice.neighbour(parity, mu, hops) for mu, hops in displacements(directions)]
    return np.stack(columns, axis=-1)


def staple_tables(lattice: Lattice, parity: int, mu: int, nu: int) -> tuple[NDArray[np.int32], ...]:
    """Numbers of x+nu, x+mu, x-nu (opposite parity) and x-nu+mu (same parity) for the sites x of `parity`."""
    down = lattice.neighbour(parity, nu, -1)
    corner = lattice.neighbour(1 - parity, mu, 1)[down]
    return lattice.neighbour(parity, nu, 1), lattice.neighbour(parity, mu, 1), down, corner

"""Products with the matrices of a coarse grid operator: at each site a sum over its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.kernels.coarse_operands import check_coarse_dslash, check_coarse_links
from stages.kernels.dispatch import Array, array_module


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices ``[site, direction, n, n]`` and int32 neighbours ``[site, direction]`` of output sites.

    input_sites: how many sites an input has at least.
    """

    links: Array
    neighbours: Array
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.links.dtype)

    @property
    def components(self) -> int:
        return self.links.shape[-1]


def pack(links: Array, neighbours: Array) -> PackedCoarseLinks:
    """Complex matrices and int32 neighbours as in `PackedCoarseLinks`, any number of directions, in this
    backend's layout. Raises InputError.
    """
    check_coarse_links(links, neighbours)
    table = array_module(links).asarray(neighbours)
    return PackedCoarseLinks(links, table, int(neighbours.max()) + 1)


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: Array,
    out: Array,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> Array:
    """``out[s] = a diagonal[s] + b sum_d links[s, d] x[neighbours[s, d]]``; returns `out`.

    x ``[input site, n, N]``; out, diagonal ``[site, n, N]``; all of one dtype. `out` may be `diagonal`, never
    `x`; otherwise what it held is not read. Raises InputError.
    """
    check_coarse_dslash(packed, x, out, diagonal)
    sites, directions, n, _ = packed.links.shape
    rows = packed.links.swapaxes(1, 2).reshape(sites, n, directions * n)
    total = b * (rows @ x[packed.neighbours].reshape(sites, directions * n, -1))
    out[...] = total if diagonal is None else a * diagonal + total
    return out

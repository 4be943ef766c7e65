"""One matrix product a site, of gathered neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices as rows ``[site, n, direction * n]``, int32 neighbours ``[site, direction]`` of output sites.

    input_sites: how many sites an input has at least.
    """

    rows: Array
    neighbours: Array
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.rows.dtype)

    @property
    def components(self) -> int:
        return self.rows.shape[1]


def pack(links: Array, neighbours: Array) -> PackedCoarseLinks:
    xp, (sites, directions, n, _) = array_module(links), links.shape
    rows = xp.ascontiguousarray(links.swapaxes(1, 2)).reshape(sites, n, directions * n)
    return PackedCoarseLinks(rows, xp.asarray(neighbours), int(neighbours.max()) + 1)


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: Array,
    out: Array,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> Array:
    sites, _, terms = packed.rows.shape
    total = b * (packed.rows @ x[packed.neighbours].reshape(sites, terms, -1))
    out[...] = total if diagonal is None else a * diagonal + total
    return out

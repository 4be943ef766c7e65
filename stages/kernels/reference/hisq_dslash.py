"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.kernels.directions import neighbour_table
from stages.kernels.dispatch import Array, array_module
from stages.kernels.operands import check_dslash, check_links
from stages.lattice.geometry import Lattice


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, direction, 3, 3]``, `neighbours` int32 ``[site, direction]`` in the opposite parity;
    the order of the directions is that of `stages.kernels.directions`.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: Array
    neighbours: Array


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    """Complex links ``[site, 16 or 8, 3, 3]`` in this backend's layout; InputError on a wrong shape."""
    check_links(links, lattice, parity)
    directions = links.shape[1]
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, directions))
    return PackedLinks(lattice, parity, directions, np.dtype(links.dtype), links, neighbours)


def hisq_dslash(
    packed: PackedLinks,
    x: Array,
    out: Array,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: Array | None = None,
) -> Array:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype.
    `out` may be `diagonal`, never `x`; otherwise what it held is not read. If given, dots, float64 ``[N]``,
    receives Re conj(diagonal) . out of each right-hand side, added in double over sites. Raises InputError.
    """
    check_dslash(packed, x, out, diagonal, dots)
    total = sum(packed.links[:, d] @ x[packed.neighbours[:, d]] for d in range(packed.directions))
    result = b * total if diagonal is None else a * diagonal + b * total
    if dots is not None and diagonal is not None:
        dots[...] = (diagonal.conj() * result.astype(complex)).sum(axis=(0, 1)).real
    out[...] = result
    return out

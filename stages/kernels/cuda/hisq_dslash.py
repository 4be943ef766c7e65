"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import cupy
import numpy as np

from stages.kernels.cuda.compile import run
from stages.kernels.cuda.launch import dslash as shapes
from stages.kernels.operands import check_dslash, check_links
from stages.lattice.geometry import Lattice


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`, packed by tiles.

    `links` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest. The
    tile (`shapes.dslash_tile`) depends on the lattice alone: one packing serves every number of rhs.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: cupy.ndarray


def pack(links: cupy.ndarray, lattice: Lattice, parity: int) -> PackedLinks:
    """Complex links ``[site, 16 or 8, 3, 3]`` packed by tiles (a copy); InputError on a wrong shape."""
    check_links(links, lattice, parity)
    directions = links.shape[1]
    x, y, z, t = lattice.extents
    tx, ty, tz, tt = shapes.dslash_tile(lattice)
    boxes = links.reshape(t // tt, tt, z // tz, tz, y // ty, ty, x // 2 // tx, tx, directions, 9)
    tiles = cupy.ascontiguousarray(boxes.transpose(0, 2, 4, 6, 8, 1, 3, 5, 7, 9))
    packed = tiles.reshape(-1, directions, tx * ty * tz * tt, 3, 3)
    return PackedLinks(lattice, parity, directions, np.dtype(links.dtype), packed)


def hisq_dslash(
    packed: PackedLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    *,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> cupy.ndarray:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype,
    N up to 64. `out` may be `diagonal`, never `x`; otherwise what it held is not read. Raises InputError.
    """
    check_dslash(packed, x, out, diagonal)
    real = np.float32 if packed.dtype == np.complex64 else np.float64
    run(
        shapes.dslash(packed.lattice, packed.directions, packed.dtype, x.shape[2]),
        packed.links,
        x,
        np.uintp(0) if diagonal is None else diagonal,
        out,
        real(a),
        real(b),
        np.int32(packed.parity),
    )
    return out

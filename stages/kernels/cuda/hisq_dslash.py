"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cupy
import numpy as np

from stages.kernels.cuda.compile import run
from stages.kernels.cuda.launch import columns
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
    dots: cupy.ndarray | None = None,
) -> cupy.ndarray:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype,
    N up to 64. `out` may be `diagonal`, never `x`; otherwise what it held is not read. Raises InputError.
    """
    check_dslash(packed, x, out, diagonal, dots)
    real = np.float32 if packed.dtype == np.complex64 else np.float64
    n, null = x.shape[2], np.uintp(0)
    kernel = shapes.dslash(packed.lattice, packed.directions, packed.dtype, n, dots is not None)
    sums = None if dots is None else _workspace(kernel.grid[0], n, cupy.cuda.get_device_id())
    run(
        kernel,
        packed.links,
        x,
        null if diagonal is None else diagonal,
        out,
        null if sums is None else sums.blocks,
        real(a),
        real(b),
        np.int32(packed.parity),
    )
    if sums is not None:
        second = columns.sum_rows(kernel.grid[0], n)
        run(second, sums.blocks, sums.runs, sums.finished, dots, np.int32(kernel.grid[0]))
    return out


@dataclass(frozen=True)
class _Workspace:
    """Partial sums of the blocks of a dslash and of `sum_rows`, and the count of its finished blocks."""

    blocks: cupy.ndarray
    runs: cupy.ndarray
    finished: cupy.ndarray


@cache
def _workspace(blocks: int, n: int, device: int) -> _Workspace:
    runs = columns.sum_rows(blocks, n).grid[0]
    return _Workspace(cupy.empty((blocks, n)), cupy.empty((runs, n)), cupy.zeros(4, np.uint32))

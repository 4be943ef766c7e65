"""Tiles of sites that the dslash kernels take links in, and the order of the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log2, prod

from stages.lqcd.kernels.cuda.devices.partition import TileWork
from stages.lqcd.kernels.cuda.launch import divisors
from stages.lqcd.lattice.geometry import Lattice

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class DslashShape:
    """Shape of the dslash: sites of a tile per block, right-hand sides per thread, order of the tiles.

    Chunks of the traversal are in tiles; `resident_threads` per multiprocessor bounds the registers.
    """

    tile: Box
    rhs_per_thread: int
    sites_per_block: int
    y_chunk: int
    z_chunk: int
    resident_threads: int = 512


def nearest_box(lattice: Lattice, wish: Box) -> Box:
    """The largest box, up to the one wished for, that divides one parity's lattice.

    Among those of a size the one of the most similar shape; it has an even number of sites.
    """

    def distance(box: Box) -> tuple[int, float]:
        return -prod(box), sum(abs(log2(side / wished)) for side, wished in zip(box, wish, strict=True))

    x, y, z, t = lattice.extents
    boxes = product(divisors(x // 2), divisors(y), divisors(z), divisors(t))
    return min((box for box in boxes if prod(box) <= prod(wish) and prod(box) % 2 == 0), key=distance)


def chunk(tiles: int, most: int) -> int:
    """The largest number up to `most`, and at least one, of tiles that divides them into whole chunks."""
    return max(d for d in divisors(tiles) if d <= max(1, most))


def tile_work(lattice: Lattice, shape: DslashShape, reach: int) -> TileWork:
    """The work of a dslash in this shape that devices share; its hops go `reach` slices in t."""
    x, _, _, t = lattice.extents
    layer = x // 2 // shape.tile[0] * shape.y_chunk * shape.z_chunk
    return TileWork(t // shape.tile[3], shape.tile[3], layer, reach)

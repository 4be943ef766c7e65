"""Tiles of sites that the dslash kernels take links in, and the order of the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, log2, prod

import numpy as np

from stages.lqcd.kernels.cuda.devices.partition import TileWork
from stages.lqcd.kernels.cuda.launch import (
    MULTIPROCESSOR_SHARED,
    Launch,
    divisors,
    extents_of,
    instance,
    listed,
)
from stages.lqcd.lattice.geometry import Lattice

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""

Box = tuple[int, int, int, int]

BlockShape = tuple[int, int, int]
"""Right-hand sides per thread, threads of a block, and resident threads of a multiprocessor."""


@dataclass(frozen=True)
class DslashShape:
    """Shape of a dslash of `rhs` right-hand sides: sites of a tile per block, order of the tiles.

    Chunks of the traversal are in tiles; `resident_threads` per multiprocessor bounds the registers.
    """

    lattice: Lattice
    rhs: int
    tile: Box
    rhs_per_thread: int
    sites_per_block: int
    y_chunk: int
    z_chunk: int
    resident_threads: int

    @classmethod
    def of(
        cls, lattice: Lattice, tile: Box, n: int, block: BlockShape, chunks: tuple[int, int]
    ) -> DslashShape:
        """Blocks of up to so many threads on the sites of a tile, `n` right-hand sides each.

        chunks: sites of a chunk along y and z, at most.
        """
        rhs, threads, resident = block
        sites = max(s for s in divisors(prod(tile)) if s == 1 or s * (n // rhs) <= threads)
        y, z = (chunk(lattice.extents[i] // tile[i], chunks[i - 1] // tile[i]) for i in (1, 2))
        return cls(lattice, n, tile, rhs, sites, y, z, resident)

    def launch(
        self,
        kernel: str,
        dtype: np.dtype,
        shared_bytes: int,
        reach: int,
        kinds: tuple[object, ...],
        choices: tuple[object, ...] = (),
    ) -> Launch:
        """A kernel of the file of its name in this shape; its hops go `reach` slices in t.

        kinds: template arguments before the width. choices: those after the order of the tiles.
        """
        threads = self.sites_per_block * (self.rhs // self.rhs_per_thread)
        resident = self.resident_threads // 32 // ceil(threads / 32)
        blocks = max(1, min(resident, MULTIPROCESSOR_SHARED // max(1, shared_bytes)))
        geometry = (extents_of(self.lattice), f"Tile<{listed(self.tile)}>")
        block = (self.rhs, self.rhs_per_thread, self.sites_per_block, blocks, self.y_chunk, self.z_chunk)
        return Launch(
            f"{kernel}.cu",
            instance(kernel, dtype, *geometry, *kinds, *block, *choices),
            (self.lattice.half_volume // self.sites_per_block,),
            threads,
            shared_bytes,
            for_lattice=True,
            work=self._work(reach),
        )

    def _work(self, reach: int) -> TileWork:
        """The work that devices share."""
        x, _, _, t = self.lattice.extents
        layer = x // 2 // self.tile[0] * self.y_chunk * self.z_chunk
        return TileWork(t // self.tile[3], self.tile[3], layer, reach)


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

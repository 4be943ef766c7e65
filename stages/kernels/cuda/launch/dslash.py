"""Shapes of the dslash kernels: tiles, right-hand sides per thread, order of the tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, log2, prod

import numpy as np

from stages.kernels.cuda.launch.base import (
    BLOCK_THREADS,
    MULTIPROCESSOR_SHARED,
    Launch,
    check_rhs,
    divisors,
    extents_of,
    instance,
    listed,
)
from stages.kernels.cuda.tuning.choice import Options, tuned
from stages.lattice.errors import InputError
from stages.lattice.geometry import Lattice

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""


Box = tuple[int, int, int, int]
TILE: Box = (4, 4, 2, 1)
"""The tile wished for, in (x / 2, y, z, t): 32 sites, 36 KB of links in single precision."""


@dataclass(frozen=True)
class DslashShape:
    """How the dslash is cut up: sites of a tile per block, right-hand sides per thread, order of the tiles.

    Chunks of the traversal are in tiles; `resident_threads` per multiprocessor bounds the registers.
    """

    tile: Box
    rhs_per_thread: int
    sites_per_block: int
    y_chunk: int
    z_chunk: int
    resident_threads: int = 512


@cache
def dslash_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice, has up to 32 sites and is shaped as TILE.

    It depends on the extents alone: one packing serves every number of right-hand sides and both precisions.
    """
    x, y, z, t = lattice.extents
    boxes = product(divisors(x // 2), divisors(y), divisors(z), divisors(t))
    return min(
        (box for box in boxes if prod(box) <= prod(TILE) and prod(box) % 2 == 0), key=_distance_from_tile
    )


def _distance_from_tile(box: Box) -> tuple[int, float]:
    return -prod(box), sum(abs(log2(side / wish)) for side, wish in zip(box, TILE, strict=True))


def dslash_shape(lattice: Lattice, dtype: np.dtype, n: int) -> DslashShape:
    """The shape measured best for this precision and number of right-hand sides."""
    if dtype == np.complex64:
        rhs = 4 if n % 4 == 0 and n >= 24 else 2 if n % 2 == 0 else 1
    else:
        rhs = 2 if n % 2 == 0 and n >= 16 else 1
    threads = 128 if dtype == np.complex128 and rhs == 2 else BLOCK_THREADS
    tile = dslash_tile(lattice)
    sites = _sites_per_block(tile, n // rhs, threads)
    y_sites = 32 if n * dtype.itemsize <= 128 else 16
    y_tiles, z_tiles = lattice.extents[1] // tile[1], lattice.extents[2] // tile[2]
    y_chunk, z_chunk = _chunk(y_tiles, y_sites // tile[1]), _chunk(z_tiles, 8 // tile[2])
    return DslashShape(tile, rhs, sites, y_chunk, z_chunk)


def dslash_shapes(lattice: Lattice, dtype: np.dtype, n: int) -> tuple[DslashShape, ...]:
    """The shape measured best on an H200, then its neighbours: traversal, block, registers."""
    best = dslash_shape(lattice, dtype, n)
    tiles = [extent // side for extent, side in zip(lattice.extents, best.tile, strict=True)]
    around = [best]
    for y, z in ((16, 8), (32, 8), (8, 8), (16, 4), (16, 16)):  # in sites
        y_chunk, z_chunk = _chunk(tiles[1], y // best.tile[1]), _chunk(tiles[2], z // best.tile[2])
        around.append(replace(best, y_chunk=y_chunk, z_chunk=z_chunk))
    for rhs, threads in product((1, 2, 4), (BLOCK_THREADS // 2, BLOCK_THREADS)):
        if n % rhs == 0 and rhs * dtype.itemsize <= 32:
            sites = _sites_per_block(best.tile, n // rhs, threads)
            around.append(replace(best, rhs_per_thread=rhs, sites_per_block=sites))
    around += [replace(best, resident_threads=threads) for threads in (384, 768)]
    return tuple(dict.fromkeys(around))


def _sites_per_block(tile: Box, threads_per_site: int, threads: int) -> int:
    return max(s for s in divisors(prod(tile)) if s == 1 or s * threads_per_site <= threads)


@tuned
def dslash(
    lattice: Lattice, directions: int, dtype: np.dtype, n: int, dots: bool = False
) -> Options[DslashShape]:
    """The dslash of `hisq_dslash.cu`; with `dots` it sums conj(diagonal) out by block."""
    check_rhs(n)
    _check_index(lattice, dtype, n)
    return Options(
        dslash_shapes(lattice, dtype, n),
        lambda shape: dslash_in_shape(lattice, directions, dtype, n, shape, dots),
    )


def dslash_in_shape(
    lattice: Lattice, directions: int, dtype: np.dtype, n: int, shape: DslashShape, dots: bool = False
) -> Launch:
    """The dslash in a given shape."""
    threads = shape.sites_per_block * (n // shape.rhs_per_thread)
    shared_bytes = shape.sites_per_block * directions * 9 * dtype.itemsize
    resident_blocks = min(
        shape.resident_threads // 32 // ceil(threads / 32), MULTIPROCESSOR_SHARED // shared_bytes
    )
    min_blocks = max(1, resident_blocks)
    geometry = (extents_of(lattice), f"Tile<{listed(shape.tile)}>", directions)
    block = (n, shape.rhs_per_thread, shape.sites_per_block, min_blocks)
    return Launch(
        "hisq_dslash.cu",
        instance("hisq_dslash", dtype, *geometry, *block, shape.y_chunk, shape.z_chunk, str(dots).lower()),
        (lattice.half_volume // shape.sites_per_block,),
        threads,
        shared_bytes,
    )


def _chunk(tiles: int, most: int) -> int:
    return max(d for d in divisors(tiles) if d <= max(1, most))


def _check_index(lattice: Lattice, dtype: np.dtype, n: int) -> None:
    """The dslash counts the vectors of a field with 32 bits, which spares registers."""
    if _vectors_per_field(lattice, dtype, n) < INDEX_LIMIT:
        return
    fitting = [m for m in range(1, n) if _vectors_per_field(lattice, dtype, m) < INDEX_LIMIT]
    remedy = f"fewer right-hand sides, {fitting[-1]} at a time" if fitting else "a smaller lattice"
    raise InputError(
        f"a field of {n} right-hand sides on the lattice {lattice} has more elements than the CUDA dslash "
        f"counts, 2^32 vectors of up to 16 bytes: take {remedy}"
    )


def _vectors_per_field(lattice: Lattice, dtype: np.dtype, n: int) -> int:
    """Vectors of one parity's field ``[site, 3, n]``: pairs in single precision where n is even."""
    return lattice.half_volume * 3 * n // (2 if dtype == np.complex64 and n % 2 == 0 else 1)

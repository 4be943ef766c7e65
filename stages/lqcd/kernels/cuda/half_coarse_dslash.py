"""Products with coarse links of 16 bits: fp16 with scales, on tensor cores with sums in single precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.grid_rows import rows_beside, site_work
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.launch import Launch, check_rhs, power_of_two

ROWS, TERMS = 16, 16
"""Of a tile of the links: as tensor cores take them."""

MOST_COLUMNS = 32
"""Right-hand sides of a block."""

FEW_RHS = 4
"""Up to so many right-hand sides tensor cores have too little to do."""

MOST_GROUPS = 4
"""Row groups of a warp, whose sums it keeps in registers."""

FEW_SITES, MANY_SITES = 128, 2048
"""With fewer, or so many, the warps of a block and its groups of rows are others."""

PACK_THREADS = 256


@dataclass(frozen=True)
class PackedHalfLinks:
    """Matrices in the order of the kernel, and int32 neighbours ``[site, direction]`` of output sites.

    tiles: float16 ``[site, group of 16 rows, direction, group of 16 terms, re and im, lane, 8]``, zero beyond
    n; scales: float32 ``[site, group of 16 rows]``, the factors of these; see `half_coarse_dslash.cu`.
    """

    tiles: cupy.ndarray
    scales: cupy.ndarray
    neighbours: cupy.ndarray
    components: int
    input_sites: int

    dtype = np.dtype(np.complex64)


def packed_half(links: cupy.ndarray, neighbours: cupy.ndarray) -> PackedHalfLinks:
    sites, directions, n, _ = links.shape
    groups, chunks = ceil(n / ROWS), ceil(n / TERMS)
    tiles = rows_beside(links, (sites, groups, directions, chunks, 2, 32, 8), np.float16)
    scales = rows_beside(links, (sites, groups), np.float32)
    run(half_tiles_launch(n, directions, sites, site_work(links)), links, tiles, scales)
    return PackedHalfLinks(tiles, scales, cupy.asarray(neighbours), n, int(neighbours.max()) + 1)


def start(
    packed: PackedHalfLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    diagonal: cupy.ndarray | None,
    a: float,
    b: float,
) -> None:
    """Start the kernel unchecked."""
    sites, directions = packed.neighbours.shape
    work = site_work(packed.tiles)
    kernel = half_coarse_dslash_launch(packed.components, x.shape[2], directions, sites, work)
    added = np.uintp(0) if diagonal is None else diagonal
    run(
        kernel, packed.tiles, packed.scales, packed.neighbours, x, added, out, np.float32(a), np.float32(b)
    )  # fmt: skip


@cache
def half_tiles_launch(n: int, directions: int, sites: int, work: Work | None = None) -> Launch:
    """Grid (sites, groups of rows)."""
    instance, grid = f"half_tiles<{n}, {directions}>", (sites, ceil(n / ROWS))
    return Launch("half_coarse_dslash.cu", instance, grid, PACK_THREADS, work=work)


@cache
def half_coarse_dslash_launch(
    components: int, n: int, directions: int, sites: int, work: Work | None = None
) -> Launch:
    """Grid (sites, runs of row groups, groups of right-hand sides), in the shape that measured best.

    A warp makes one group of rows where blocks are few, or right-hand sides, and all of them where sites or
    right-hand sides are many.
    """
    check_rhs(n)
    few, all_groups = n <= FEW_RHS, ceil(components / ROWS)
    several = all_groups <= MOST_GROUPS and sites >= FEW_SITES and (sites >= MANY_SITES or n > 16)
    groups = all_groups if several and not few else 1
    warps = 16 if sites < FEW_SITES else 8 if few else 4
    split = min(warps, power_of_two(directions * ceil(components / TERMS)))
    blocks = ceil(n / MOST_COLUMNS)
    numbers = groups * ROWS * (4 * n if few else 8 * ceil(ceil(n / blocks) / 8))
    shared = split * numbers * 8 if split > 1 else 0
    sums, grid = "FewSums" if few else "TensorSums", (sites, all_groups // groups, blocks)
    instance = f"half_coarse_dslash<{sums}, {components}, {n}, {directions}, {groups}, {split}>"
    return Launch("half_coarse_dslash.cu", instance, grid, 32 * split, shared, work=work)

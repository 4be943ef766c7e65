"""Products in single precision on tensor cores; double precision, in which no cycle runs, is refused.

Links of 16 bits, fp16 with scales, are summed in single precision, too. Matrices against the directions are
read once, and turned in shared memory; inverses are the batched ones of cuBLAS and cuSOLVER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod

import cupy
import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import current_group, works_separately
from stages.lqcd.kernels.cuda.devices.own_rows import of_rows, rows_beside, site_work
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    largest_divisor,
    power_of_two,
)
from stages.lqcd.kernels.expressions import inverse as inverse

ROWS, TERMS, HALF_TERMS = 16, 8, 16
"""Of a tile of the links, and of one of links of 16 bits: as tensor cores take them."""

MOST_COLUMNS = 32
"""Right-hand sides of a block."""

MOST_GROUPS = 4
"""Row groups of a warp, whose sums it keeps in registers."""

FEW_RHS = 4
"""Up to so many right-hand sides tensor cores have too little to do."""

WARPS = 24
"""Of a multiprocessor, wished for where one warp makes one group of rows."""

MOST_WARPS = 16
"""Of a block."""

FEW_SITES, MANY_SITES = 128, 2048
"""From 128 on a warp makes several groups of rows, for which right-hand sides are prepared only once.

Of links of 16 bits it does so from 2048 on, or for many right-hand sides.
"""


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices in the order of the kernel, and int32 neighbours ``[site, direction]`` of output sites.

    tiles: complex64 ``[site, group of 16 rows, direction, group of 8 columns, lane, 4]``, zero beyond n; see
    `coarse_dslash.cu`. Of 16 bits: float16 ``[site, group of 16 rows, direction, group of 16 terms, re and
    im, lane, 8]`` with scales, float32 ``[site, group of 16 rows]``, their factors; see
    `half_coarse_dslash.cu`.
    """

    tiles: cupy.ndarray
    neighbours: cupy.ndarray
    components: int
    input_sites: int
    scales: cupy.ndarray | None = None

    dtype = np.dtype(np.complex64)


def pack(links: cupy.ndarray, neighbours: cupy.ndarray) -> PackedCoarseLinks:
    _check_single(links)
    sites, directions, n, _ = links.shape
    groups, chunks = -(-n // ROWS), -(-n // TERMS)

    def in_tiles(links: cupy.ndarray) -> cupy.ndarray:
        padded = links
        if n % ROWS:
            padded = cupy.zeros((len(links), directions, groups * ROWS, chunks * TERMS), links.dtype)
            padded[:, :, :n, :n] = links
        # rows = (group, high, g), columns = (chunk, half, t) to (group, direction, chunk, g, t, half, high)
        split = padded.reshape(-1, directions, groups, 2, 8, chunks, 2, 4)
        return cupy.ascontiguousarray(split.transpose(0, 2, 1, 5, 4, 7, 6, 3))

    tiles = of_rows(in_tiles, links).reshape(sites, groups, directions, chunks, 32, 4)
    return PackedCoarseLinks(tiles, cupy.asarray(neighbours), n, int(neighbours.max()) + 1)


def pack_half(links: cupy.ndarray, neighbours: cupy.ndarray) -> PackedCoarseLinks:
    _check_single(links)
    sites, directions, n, _ = links.shape
    groups, chunks = ceil(n / ROWS), ceil(n / HALF_TERMS)
    tiles = rows_beside(links, (sites, groups, directions, chunks, 2, 32, 8), np.float16)
    scales = rows_beside(links, (sites, groups), np.float32)
    run(half_tiles_launch(n, directions, sites, site_work(links)), links, tiles, scales)
    return PackedCoarseLinks(tiles, cupy.asarray(neighbours), n, int(neighbours.max()) + 1, scales)


def _check_single(links: cupy.ndarray) -> None:
    if links.dtype != np.complex64:
        raise InputError(f"multigrid on a GPU has complex64 links, got {links.dtype}: convert them")


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    *,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> cupy.ndarray:
    (sites, directions), half = packed.neighbours.shape, packed.scales is not None
    launch = half_coarse_dslash_launch if half else coarse_dslash_launch
    kernel = launch(packed.components, x.shape[2], directions, sites, work=site_work(packed.tiles))
    links = (packed.tiles, packed.scales) if half else (packed.tiles,)
    added = np.uintp(0) if diagonal is None else diagonal
    run(kernel, *links, packed.neighbours, x, added, out, np.float32(a), np.float32(b))
    return out


@cache
def coarse_dslash_launch(
    components: int,
    n: int,
    directions: int,
    sites: int,
    groups: int | None = None,
    split: int | None = None,
    work: Work | None = None,
) -> Launch:
    """Grid (sites, runs of `groups` row groups, groups of right-hand sides).

    The `split` warps of a block share the terms of a sum. By default both are those that measured best
    (docs/notes/coarse_dslash.md).
    """
    check_rhs(n)
    few, all_groups = n <= FEW_RHS, ceil(components / ROWS)
    columns, steps = min(n, MOST_COLUMNS), directions * ceil(components / TERMS)
    groups = groups or (1 if few or sites < FEW_SITES else largest_divisor(all_groups, MOST_GROUPS))
    grid = (sites, all_groups // groups, ceil(n / columns))
    split = split or min(_split(groups, columns, prod(grid)), power_of_two(steps))
    sums = "FewSums" if few else "TensorSums"
    kernel = f"coarse_dslash<{sums}, {components}, {n}, {directions}, {groups}, {split}>"
    shared = split * groups * ROWS * columns * 8
    return Launch("coarse_dslash.cu", kernel, grid, 32 * split, shared, work=work)


def _split(groups: int, columns: int, blocks: int) -> int:
    """Warps of a block: enough to fill the device, few enough for their registers."""
    if groups == 1:
        return min(MOST_WARPS, power_of_two(2 * ceil(WARPS * MULTIPROCESSORS / blocks) - 1))
    rows_times_columns = 384 if blocks >= 8 * MULTIPROCESSORS else 512
    return min(8, power_of_two(rows_times_columns // (groups * columns)))


@cache
def half_tiles_launch(n: int, directions: int, sites: int, work: Work | None = None) -> Launch:
    """Grid (sites, groups of rows)."""
    kernel, grid = f"half_tiles<{n}, {directions}>", (sites, ceil(n / ROWS))
    return Launch("half_coarse_dslash.cu", kernel, grid, BLOCK_THREADS, work=work)


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
    split = min(warps, power_of_two(directions * ceil(components / HALF_TERMS)))
    blocks = ceil(n / MOST_COLUMNS)
    numbers = groups * ROWS * (4 * n if few else 8 * ceil(ceil(n / blocks) / 8))
    shared = split * numbers * 8 if split > 1 else 0
    sums, grid = "FewSums" if few else "TensorSums", (sites, all_groups // groups, blocks)
    kernel = f"half_coarse_dslash<{sums}, {components}, {n}, {directions}, {groups}, {split}>"
    return Launch("half_coarse_dslash.cu", kernel, grid, 32 * split, shared, work=work)


def add_backward(
    diagonal: cupy.ndarray, inside: Sequence[cupy.ndarray], links: cupy.ndarray, behind: cupy.ndarray
) -> None:
    sites, n = diagonal.shape[0], diagonal.shape[-1]
    run(backward_links_launch(n, links.dtype, sites, site_work(links)), diagonal, *inside, links, behind)


@cache
def backward_links_launch(n: int, dtype: np.dtype, sites: int, work: Work | None = None) -> Launch:
    """Grid (sites)."""
    return Launch(
        "backward_links.cu", instance("backward_links", dtype, n), (sites,), BLOCK_THREADS, work=work
    )


def is_finite(matrices: cupy.ndarray) -> bool | cupy.ndarray:
    """True if no element is infinite or NaN: on one device an array of it, of several their answers."""
    answer = cupy.isfinite(matrices).all()
    return answer if current_group() is None and not works_separately() else bool(answer)

"""Products in single precision on tensor cores; double precision, in which no cycle runs, is refused.

Matrices against the directions are read once, and turned in shared memory; inverses are the batched ones of
cuBLAS and cuSOLVER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod

import cupy
import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda import half_coarse_dslash
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.grid_rows import of_rows, site_work
from stages.lqcd.kernels.cuda.devices.group import current_group, works_separately
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.half_coarse_dslash import PackedHalfLinks, packed_half
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    power_of_two,
)
from stages.lqcd.kernels.expressions import inverse as inverse

ROWS, TERMS = 16, 8
"""Of a tile of the links: as tensor cores take them."""

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

MANY_SITES = 128
"""From so many on a warp makes several groups of rows, for which right-hand sides are prepared only once."""


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices in the order of the kernel, and int32 neighbours ``[site, direction]`` of output sites.

    tiles: complex64 ``[site, group of 16 rows, direction, group of 8 columns, lane, 4]``, zero beyond n; see
    `coarse_dslash.cu`.
    """

    tiles: cupy.ndarray
    neighbours: cupy.ndarray
    components: int
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.complex64)


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


def pack_half(links: cupy.ndarray, neighbours: cupy.ndarray) -> PackedHalfLinks:
    _check_single(links)
    return packed_half(links, neighbours)


def _check_single(links: cupy.ndarray) -> None:
    if links.dtype != np.complex64:
        raise InputError(f"multigrid on a GPU has complex64 links, got {links.dtype}: convert them")


def coarse_dslash(
    packed: PackedCoarseLinks | PackedHalfLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    *,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> cupy.ndarray:
    if isinstance(packed, PackedHalfLinks):
        half_coarse_dslash.start(packed, x, out, diagonal, a, b)
    else:
        start(packed, x, out, diagonal, a, b)
    return out


def start(
    packed: PackedCoarseLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    groups: int | None = None,
    split: int | None = None,
) -> None:
    """Start the kernel unchecked; groups and split as in `coarse_dslash_launch`."""
    sites, directions = packed.neighbours.shape
    work = site_work(packed.tiles)
    kernel = coarse_dslash_launch(packed.components, x.shape[2], directions, sites, groups, split, work)
    nothing = np.uintp(0)
    run(
        kernel,
        packed.tiles,
        packed.neighbours,
        x,
        nothing if diagonal is None else diagonal,
        out,
        np.float32(a),
        np.float32(b),
    )


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
    (docs/coarse_dslash.md).
    """
    check_rhs(n)
    few, all_groups = n <= FEW_RHS, ceil(components / ROWS)
    columns, steps = min(n, MOST_COLUMNS), directions * ceil(components / TERMS)
    groups = groups or (1 if few or sites < MANY_SITES else _largest_divisor(all_groups, MOST_GROUPS))
    grid = (sites, all_groups // groups, ceil(n / columns))
    split = split or min(_split(groups, columns, prod(grid)), power_of_two(steps))
    sums = "FewSums" if few else "TensorSums"
    instance = f"coarse_dslash<{sums}, {components}, {n}, {directions}, {groups}, {split}>"
    shared = split * groups * ROWS * columns * 8
    return Launch("coarse_dslash.cu", instance, grid, 32 * split, shared, work=work)


def _split(groups: int, columns: int, blocks: int) -> int:
    """Warps of a block: enough to fill the device, few enough for their registers."""
    if groups == 1:
        return min(MOST_WARPS, power_of_two(2 * ceil(WARPS * MULTIPROCESSORS / blocks) - 1))
    rows_times_columns = 384 if blocks >= 8 * MULTIPROCESSORS else 512
    return min(8, power_of_two(rows_times_columns // (groups * columns)))


def _largest_divisor(number: int, most: int) -> int:
    return max(divisor for divisor in range(1, most + 1) if number % divisor == 0)


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

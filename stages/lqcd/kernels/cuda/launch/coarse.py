"""Shapes of the coarse-grid dslash."""

from __future__ import annotations

from math import ceil, prod

from stages.lqcd.kernels.cuda.launch.base import MULTIPROCESSORS, Launch, check_rhs, power_of_two

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


def coarse_dslash(
    components: int, n: int, directions: int, sites: int, groups: int | None = None, split: int | None = None
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
    return Launch("coarse_dslash.cu", instance, grid, 32 * split, split * groups * ROWS * columns * 8)


def _split(groups: int, columns: int, blocks: int) -> int:
    """Warps of a block: enough to fill the device, few enough for their registers."""
    if groups == 1:
        return min(MOST_WARPS, power_of_two(2 * ceil(WARPS * MULTIPROCESSORS / blocks) - 1))
    rows_times_columns = 384 if blocks >= 8 * MULTIPROCESSORS else 512
    return min(8, power_of_two(rows_times_columns // (groups * columns)))


def _largest_divisor(number: int, most: int) -> int:
    return max(divisor for divisor in range(1, most + 1) if number % divisor == 0)

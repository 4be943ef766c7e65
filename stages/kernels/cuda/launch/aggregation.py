"""Shapes of the transfer between a grid and its aggregates."""

from __future__ import annotations

from math import ceil

from stages.kernels.cuda.launch.base import MULTIPROCESSORS, Launch, check_rhs
from stages.kernels.cuda.launch.coarse import ROWS

RESTRICT_COLUMNS, PROLONG_COLUMNS = 32, 16
"""Right-hand sides of a block: as many as its registers hold sums of, or prepared coarse values."""

RESTRICT_WARPS, PROLONG_WARPS = 8, 4
"""Of a block."""

BLOCKS = 16 * MULTIPROCESSORS
"""Of a prolongation, wished for."""


def restrict(components: int, vectors: int, n: int, aggregates: int) -> Launch:
    """Grid (groups of right-hand sides, 2 aggregates); a block's warps share the rows of an aggregate."""
    check_rhs(n)
    columns = min(n, RESTRICT_COLUMNS)
    instance = f"restrict_field<{components}, {vectors}, {n}, {columns}, {RESTRICT_WARPS}>"
    grid = (ceil(n / columns), 2 * aggregates)
    return Launch(
        "aggregation.cu", instance, grid, 32 * RESTRICT_WARPS, RESTRICT_WARPS * vectors * columns * 8
    )


def add_prolonged(components: int, vectors: int, n: int, aggregates: int, sites: int) -> Launch:
    """Grid (groups of right-hand sides, 2 aggregates, parts of the rows); `sites` of an aggregate."""
    check_rhs(n)
    columns = min(n, PROLONG_COLUMNS)
    instance = f"add_prolonged<{components}, {vectors}, {n}, {columns}, {PROLONG_WARPS}>"
    blocks, most = ceil(n / columns) * 2 * aggregates, ceil(sites * components / (ROWS * PROLONG_WARPS))
    parts = min(most, ceil(BLOCKS / blocks))
    return Launch("aggregation.cu", instance, (ceil(n / columns), 2 * aggregates, parts), 32 * PROLONG_WARPS)

"""Shapes of the transfer between a grid and its aggregates."""

from __future__ import annotations

from functools import cache
from math import ceil

from stages.kernels.cuda.launch.base import MULTIPROCESSORS, Launch, check_rhs
from stages.kernels.cuda.launch.coarse import ROWS, TERMS

COLUMNS = 16
"""Right-hand sides of a block."""

WARPS = 4
"""Of a block where there are many blocks."""

BLOCKS = 16 * MULTIPROCESSORS
"""As many: a prolongation cuts the rows of aggregates to get them, a restriction adds warps to fewer."""

WHOLE_GRAM = 4
"""Eights of vectors up to which a block sums the whole Gram matrix in its registers."""


@cache
def gram(vectors: int, matrices: int) -> Launch:
    """Grid (matrices, bands of rows of the result): a narrow result whole, a wide one 8 rows at a time."""
    check_rhs(vectors)
    tiles = ceil(vectors / TERMS)
    band = tiles if tiles <= WHOLE_GRAM else 1
    instance = f"aggregate_gram<{vectors}, {band}, {WARPS}>"
    sums = WARPS * sum(range(tiles - band + 1, tiles + 1)) * TERMS**2 * 16
    return Launch("aggregate_gram.cu", instance, (matrices, tiles // band), 32 * WARPS, sums)


def restrict(components: int, vectors: int, n: int, aggregates: int) -> Launch:
    """Grid (groups of right-hand sides, 2 aggregates); a block's warps share the rows of an aggregate."""
    check_rhs(n)
    columns, warps = min(n, COLUMNS), WARPS if 2 * aggregates >= BLOCKS else 2 * WARPS
    instance = f"restrict_field<{components}, {vectors}, {n}, {columns}, {warps}>"
    grid = (ceil(n / columns), 2 * aggregates)
    return Launch("aggregation.cu", instance, grid, 32 * warps, warps * vectors * columns * 8)


def add_prolonged(components: int, vectors: int, n: int, aggregates: int, sites: int) -> Launch:
    """Grid (groups of right-hand sides, 2 aggregates, parts of the rows); `sites` of an aggregate."""
    check_rhs(n)
    columns = min(n, COLUMNS)
    instance = f"add_prolonged<{components}, {vectors}, {n}, {columns}, {WARPS}>"
    blocks, most = ceil(n / columns) * 2 * aggregates, ceil(sites * components / (ROWS * WARPS))
    parts = min(most, ceil(BLOCKS / blocks))
    return Launch("aggregation.cu", instance, (ceil(n / columns), 2 * aggregates, parts), 32 * WARPS)

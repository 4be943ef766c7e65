"""Shapes of the transfer between a grid and its aggregates."""

from __future__ import annotations

from functools import cache
from math import ceil

from stages.lqcd.kernels.cuda.launch.base import MAX_RHS, MULTIPROCESSORS, Launch, check_rhs
from stages.lqcd.kernels.cuda.launch.coarse import ROWS

COLUMNS = 16
"""Right-hand sides of a block."""

WARPS = 4
"""Of a block where there are many blocks."""

BLOCKS = 16 * MULTIPROCESSORS
"""Wished for: a prolongation cuts the rows of aggregates to get them, a restriction adds warps to fewer."""

MOST_VECTORS = MAX_RHS // 2
"""Of a level: its Galerkin products multiply twice as many fields at once."""

GRAM_TILE = 8
"""Rows and columns of a Gram matrix that tensor cores sum together."""


@cache
def gram(vectors: int, matrices: int) -> Launch:
    """Grid (matrices); a block's warps share the rows, each sums the whole Gram matrix in its registers."""
    tiles = ceil(vectors / GRAM_TILE)
    sums = WARPS * tiles * (tiles + 1) // 2 * GRAM_TILE**2 * 16
    return Launch("aggregate_gram.cu", f"aggregate_gram<{vectors}, {WARPS}>", (matrices,), 32 * WARPS, sums)


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

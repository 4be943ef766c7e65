"""Fields as rows of reals, and the fixed blocks of rows over which the CPU kernels sum.

Few right-hand sides leave a register nearly empty: f consecutive rows of N then count as one of f N.
"""

from __future__ import annotations

from functools import cache

from numpy.typing import NDArray

BLOCK_ROWS = 2048
"""Rows of one partial sum at most. Partial sums are added in order, whichever thread made them."""

WIDENED = 16
"""Right-hand sides up to which rows are taken together."""

SHARES = 8
"""Partial sums at least, of which threads can take equal shares."""


def fold_of(field: NDArray) -> int:
    """The largest power of two of rows of a field ``[..., N]`` that can be taken as one."""
    rhs = field.shape[-1]
    return _fold(field.size // rhs, rhs)


@cache
def _fold(rows: int, rhs: int) -> int:
    fold = 1
    while 2 * fold * rhs <= WIDENED and rows % (2 * fold) == 0:
        fold *= 2
    return fold


def folded(field: NDArray, fold: int) -> NDArray:
    """A C-contiguous complex field ``[..., N]`` as ``[rows / fold, fold N]``, without a copy."""
    return field.reshape(-1, fold * field.shape[-1])


def real_rows(block: NDArray) -> NDArray:
    """A C-contiguous complex block ``[..., N]`` as reals ``[rows, 2 N]``, without a copy."""
    return block.reshape(-1, block.shape[-1]).view(block.real.dtype)


def block_rows_of(rows: int, fold: int = 1) -> int:
    """Rows of one partial sum over `rows` rows, each of which is so many folded ones."""
    return max(1, min(BLOCK_ROWS // fold, -(-rows // SHARES)))


def block_count(rows: int, block_rows: int = BLOCK_ROWS) -> int:
    """Number of blocks that cover `rows` rows."""
    return -(-rows // block_rows)

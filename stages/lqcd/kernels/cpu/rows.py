"""Fields as rows of reals, and the fixed blocks of rows over which the CPU kernels sum."""

from __future__ import annotations

from numpy.typing import NDArray

BLOCK_ROWS = 2048
"""Rows of one partial sum. Partial sums are added in order, whichever thread made them."""


def real_rows(block: NDArray) -> NDArray:
    """A C-contiguous complex block ``[..., N]`` as reals ``[rows, 2 N]``, without a copy."""
    return block.reshape(-1, block.shape[-1]).view(block.real.dtype)


def block_count(rows: int, block_rows: int = BLOCK_ROWS) -> int:
    """Number of blocks that cover `rows` rows."""
    return -(-rows // block_rows)

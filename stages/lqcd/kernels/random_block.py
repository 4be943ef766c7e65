"""Random blocks, for eigensolvers and multigrid: the same bits everywhere for a seed, draw and element."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_blocks

GOLDEN = 0x9E3779B97F4A7C15


def fill_random(block: Array, seed: int, draw: int) -> None:
    """Fill a C-contiguous complex block with numbers whose parts are uniform in (-1, 1).

    The bits are those of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at counter (draw << 40) + element.
    """
    check_blocks(block=block)
    kernel("random_block.fill_random", type(block))(block, seed, draw)


def first_counter(seed: int, draw: int) -> np.uint64:
    """The generator's state before the first element of a draw."""
    return np.uint64((seed * 0xD1342543DE82EF95 + (draw << 40) * GOLDEN) % 2**64)

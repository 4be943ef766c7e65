"""Random blocks, for eigensolvers and multigrid: the same bits everywhere for a seed, draw and element."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_blocks

GOLDEN = 0x9E3779B97F4A7C15
PIECE = 1 << 22
"""Elements drawn together."""


def fill_random(block: Array, seed: int, draw: int) -> None:
    """Fill a C-contiguous complex block with numbers whose parts are uniform in (-1, 1).

    The bits are those of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at counter (draw << 40) + element.
    """
    check_blocks(block=block)
    xp, elements, start = array_module(block), block.reshape(-1), first_counter(seed, draw)
    for first in range(0, elements.size, PIECE):
        count = min(PIECE, elements.size - first)
        z = xp.arange(first + 1, first + count + 1, dtype=np.uint64)
        z *= np.uint64(GOLDEN)
        z += start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        piece = elements[first : first + count]
        piece.real = (z >> np.uint64(32)).astype(np.float64) * 2.0**-31 - 1
        piece.imag = (z & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-31 - 1


def first_counter(seed: int, draw: int) -> np.uint64:
    """The state before the first element."""
    return np.uint64((seed * 0xD1342543DE82EF95 + (draw << 40) * GOLDEN) % 2**64)

"""Pieces in NumPy."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.random_block import GOLDEN, first_counter

PIECE = 1 << 22
"""Elements drawn together."""


def fill_random(block: Array, seed: int, draw: int) -> None:
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

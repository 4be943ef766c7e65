"""Shapes of the kernels that draw random numbers."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.launch.base import BLOCK_THREADS, MULTIPROCESSORS, Launch, listed, real_of
from stages.lqcd.lattice.geometry import Lattice


@cache
def noise(kernel: str, lattice: Lattice, vectors: int, dtype: np.dtype) -> Launch:
    """`noise_roots` or `noise_gaussian` on one parity, a thread per site and vector."""
    blocks = ceil(lattice.half_volume * vectors / BLOCK_THREADS)
    return Launch(
        "noise.cu", f"{kernel}<{real_of(dtype)}, {listed(lattice.extents)}>", (blocks,), BLOCK_THREADS
    )


@cache
def fill_random(elements: int, dtype: np.dtype) -> Launch:
    """Random numbers, on a grid that fills the device."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    return Launch("random_block.cu", f"fill_random<{real_of(dtype)}>", (blocks,), BLOCK_THREADS)

"""Random fields on a GPU, one thread an element."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import segments_of
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch, real_of
from stages.lqcd.kernels.random_block import first_counter


def fill_random(block: cupy.ndarray, seed: int, draw: int) -> None:
    if block.size:
        kernel = fill_random_launch(block.size, block.dtype, segments_of(block.reshape(-1)))
        run(kernel, block, np.uint64(block.size), first_counter(seed, draw))


@cache
def fill_random_launch(elements: int, dtype: np.dtype, segments: int = 1) -> Launch:
    """Random numbers, on a grid that fills the device; segments: in which a field's sites lie."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    work = RowWork(elements // segments, segments=segments)
    return Launch("random_block.cu", f"fill_random<{real_of(dtype)}>", (blocks,), BLOCK_THREADS, work=work)

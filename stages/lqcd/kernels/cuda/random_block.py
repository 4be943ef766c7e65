"""Random blocks, for eigensolvers and multigrid: the same bits everywhere for a seed, draw and element."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import random_numbers as shapes
from stages.lqcd.kernels.operands import check_blocks
from stages.lqcd.kernels.reference.random_block import first_counter


def fill_random(block: cupy.ndarray, seed: int, draw: int) -> None:
    """Fill a C-contiguous complex block with numbers whose parts are uniform in (-1, 1).

    The bits are those of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at counter (draw << 40) + element.
    """
    check_blocks(block=block)
    if block.size:
        kernel = shapes.fill_random(block.size, block.dtype)
        run(kernel, block, np.uint64(block.size), first_counter(seed, draw))

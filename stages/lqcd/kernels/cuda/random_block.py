"""Random fields on a GPU, one thread an element."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import random_numbers as shapes
from stages.lqcd.kernels.random_block import first_counter


def fill_random(block: cupy.ndarray, seed: int, draw: int) -> None:
    if block.size:
        kernel = shapes.fill_random(block.size, block.dtype)
        run(kernel, block, np.uint64(block.size), first_counter(seed, draw))

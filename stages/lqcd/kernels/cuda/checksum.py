"""Sums of whole numbers, which come to the same in any order."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import segments_of
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch

ALIGNED = 16
"""Bytes."""


def sum_words(words: cupy.ndarray) -> int:
    total = cupy.zeros(1, np.uint64)
    aligned = words if words.data.ptr % ALIGNED == 0 else words.copy()
    segments = segments_of(words) if aligned is words else 1
    run(sum_words_launch(words.size, segments), total, aligned, np.uint64(words.size))
    return int(total[0])


@cache
def sum_words_launch(count: int, segments: int = 1) -> Launch:
    """A grid that fills the device; each thread has several loads under way. segments: cut each."""
    blocks = min(ceil(count / (4 * BLOCK_THREADS)), 8 * MULTIPROCESSORS)
    work = RowWork(count // segments, segments=segments)
    return Launch("checksum.cu", "sum_words", (blocks,), BLOCK_THREADS, work=work)

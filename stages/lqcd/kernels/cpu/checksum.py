"""Compiled by Numba: a sum for each run of words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil

import numpy as np
from numba import types
from numpy.typing import NDArray

from stages.lqcd.kernels.checksum import GOLDEN, MULTIPLIER
from stages.lqcd.kernels.cpu.compiled import array_type, compiled

RUN = 1 << 14
"""Words."""


def sum_words(words: NDArray[np.uint64]) -> int:
    sums = np.empty(ceil(len(words) / RUN), np.uint64)
    _kernel()(words, sums)
    return int(sums.sum(dtype=np.uint64))


@cache
def _kernel() -> Callable[..., None]:
    golden, multiplier = np.uint64(GOLDEN), np.uint64(MULTIPLIER)

    def sum_runs(low: int, high: int, words: NDArray, sums: NDArray) -> None:
        for run in range(low, high):
            piece = words[run * RUN : (run + 1) * RUN]
            total, place = np.uint64(0), np.uint64(run * RUN) * golden
            for i in range(len(piece)):
                z = piece[i] ^ place
                y = (z ^ (z >> np.uint64(32))) * multiplier
                total += y ^ (y >> np.uint64(29))
                place += golden
            sums[run] = total

    signature = types.void(array_type(np.uint64, 1), array_type(np.uint64, 1, writable=True))
    return compiled(sum_runs, "checksum", signature, lambda words, sums: len(sums))

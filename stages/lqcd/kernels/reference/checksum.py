"""Whole arrays at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.checksum import GOLDEN, MULTIPLIER


def sum_words(words: NDArray[np.uint64]) -> int:
    z = words ^ np.arange(len(words), dtype=np.uint64) * np.uint64(GOLDEN)
    y = (z ^ (z >> np.uint64(32))) * np.uint64(MULTIPLIER)
    return int(np.sum(y ^ (y >> np.uint64(29)), dtype=np.uint64))

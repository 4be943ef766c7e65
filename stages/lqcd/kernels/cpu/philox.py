"""Philox4x32-10 inside compiled kernels, one counter a call; see `stages.lqcd.kernels.philox`."""

from __future__ import annotations

import numpy as np
from numba import njit

MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
ROUNDS = 10


@njit
def philox4x32(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Four uniform 32-bit words for a counter and a key; all arguments and results are uint64 below 2^32.

    Salmon, Moraes, Dror and Shaw, SC'11, doi:10.1145/2063384.2063405.
    """
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIER_0 * c0, MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> WORD) ^ c1 ^ k0, p1 & LOW, (p0 >> WORD) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
    return c0, c1, c2, c3

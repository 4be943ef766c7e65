"""Philox4x32-10, a counter-based generator of random numbers.

By Salmon, Moraes, Dror and Shaw (SC'11, doi:10.1145/2063384.2063405).

The same integers come out on NumPy and CuPy: only 32-bit values held in uint64 are multiplied, shifted and
xored.
"""

from __future__ import annotations

import hashlib

import numpy as np

from stages.lqcd.kernels.dispatch import Array

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)

Words = tuple[Array, Array, Array, Array]


def philox_key(seed: int, label: str) -> tuple[int, int]:
    """The key of a configuration: two 32-bit integers, of the seed and the configuration's label.

    The first 64 bits of SHA-256 of ``f"{seed}\\0{label}"``, little endian.
    """
    number = int.from_bytes(hashlib.sha256(f"{seed}\0{label}".encode()).digest()[:8], "little")
    return number & 0xFFFFFFFF, number >> 32


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Four 32-bit words for each counter under one key.

    `counter`: four uint64 arrays of one broadcastable shape with values below 2^32, NumPy or CuPy. `key`:
    two integers below 2^32. Returns four uint64 arrays with values below 2^32, each uniform over the 32-bit
    integers.
    """
    c0, c1, c2, c3 = counter
    for number in range(ROUNDS):
        k0, k1 = (
            np.uint64((word + number * weyl) & 0xFFFFFFFF) for word, weyl in zip(key, WEYL, strict=True)
        )
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> WORD) ^ c1 ^ k0, p1 & LOW, (p0 >> WORD) ^ c3 ^ k1, p0 & LOW
    return c0, c1, c2, c3

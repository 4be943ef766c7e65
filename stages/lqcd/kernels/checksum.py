"""Checksums of arrays of any kind, the same number on the host and on a device."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, as_numpy, kernel
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.kernels.operands import check_array

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER = 0xBF58476D1CE4E5B9
WORD = 8
"""Bytes."""


def checksum(array: Array) -> int:
    """Sum modulo 2^64 over the words of an array, in C order, each mixed with its place: `sum_words`.

    Bytes that are left at the end are one more word, filled up with zeros.
    """
    content = contiguous(array).reshape(-1).view(np.uint8)
    whole = len(content) // WORD * WORD
    total = sum_words(content[:whole].view(np.uint64)) if whole else 0
    rest = as_numpy(content[whole:]).tobytes()
    return (total + mixed(int.from_bytes(rest, "little"), whole // WORD)) % 2**64 if rest else total


def sum_words(words: Array) -> int:
    """Sum modulo 2^64 of m(w_i ^ i GOLDEN), of words of 64 bits.

        y = (z ^ (z >> 32)) MULTIPLIER,   m(z) = y ^ (y >> 29)

    m takes no two words to one, so that the change of any one word changes the sum. The last step is what
    keeps changes of the same bit of two words from cancelling: a sum of products alone would let them.
    """
    check_array("words", words, words.shape[:1], np.dtype(np.uint64))
    return kernel("checksum.sum_words", type(words))(words)


def mixed(word: int, place: int) -> int:
    """A word of 64 bits mixed with its place."""
    z = word ^ place * GOLDEN % 2**64
    y = (z ^ (z >> 32)) * MULTIPLIER % 2**64
    return y ^ (y >> 29)

"""Philox4x32-10 against the known answers that Random123 ships (tests/kat_vectors)."""

import numpy as np
import pytest
from numba import njit

from stages.lqcd.kernels.random_numbers import philox4x32

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter, key, answer):
    """As NumPy has it, and compiled."""
    numbers, keys = (tuple(map(np.uint64, words(text))) for text in (counter, key))
    assert njit(philox4x32)(numbers, keys) == tuple(words(answer))
    k0, k1 = words(key)
    out = philox4x32(tuple(np.array([word], np.uint64) for word in words(counter)), (k0, k1))
    assert [int(word[0]) for word in out] == words(answer)


def test_counters_broadcast_elementwise():
    counters = tuple(np.arange(5, dtype=np.uint64) + np.uint64(10 * word) for word in range(4))
    together = np.array(philox4x32(counters, (7, 9)))
    for site in range(5):
        alone = philox4x32(tuple(counter[site : site + 1] for counter in counters), (7, 9))
        assert np.array_equal(together[:, site], np.array(alone)[:, 0])

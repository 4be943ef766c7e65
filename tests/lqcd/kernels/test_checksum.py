"""Checksums: the same number on every backend, another one for every flipped bit, moved or lost byte."""

import numpy as np
import pytest

from stages.lqcd.kernels.checksum import checksum, mixed

WORD = 2**64


def expected(content: bytes) -> int:
    """The formula in whole numbers of Python."""
    total = 0
    for place in range((len(content) + 7) // 8):
        z = int.from_bytes(content[8 * place : 8 * place + 8], "little") ^ place * 0x9E3779B97F4A7C15 % WORD
        y = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9 % WORD
        total += y ^ (y >> 29)
    return total % WORD


@pytest.mark.parametrize("kind", ["u1", "i4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7, 3, 5), (40_001,)])
def test_the_sum_is_that_of_the_formula(backend, kind, shape):
    rng = np.random.default_rng(8)
    array = np.frombuffer(rng.bytes(int(np.prod(shape)) * np.dtype(kind).itemsize), kind).reshape(shape)
    if array.size > 1000 and kind not in ("u1", "c8"):
        array = array[:999]
    assert checksum(backend.array(array)) == expected(array.tobytes())


def test_the_order_in_memory_is_none_of_it(backend):
    array = np.arange(24.0).reshape(4, 6)
    assert checksum(backend.array(array)[:, ::2]) == checksum(backend.array(array[:, ::2].copy()))


def test_every_flip_swap_and_shift_shows(backend):
    rng = np.random.default_rng(9)
    array = rng.normal(size=300)
    usual = checksum(backend.array(array))
    for bit in rng.integers(0, 64 * 300, 100):
        flipped = array.copy()
        flipped.view(np.uint8)[bit // 8] ^= 1 << bit % 8
        assert checksum(backend.array(flipped)) != usual
    for other in (np.roll(array, 1), array[::-1], np.append(array, 0.0), -array):
        assert checksum(backend.array(np.ascontiguousarray(other))) != usual


@pytest.mark.parametrize("content", ["zeros", "numbers"])
def test_flips_of_one_bit_in_two_words_do_not_cancel(content):
    rng = np.random.default_rng(10)
    words = np.zeros(200, np.uint64) if content == "zeros" else rng.normal(size=200).view(np.uint64)
    usual = [mixed(int(word), place) for place, word in enumerate(words)]
    for bit in range(64):
        flipped = [mixed(int(word) ^ 1 << bit, place) for place, word in enumerate(words)]
        changes = [(after - before) % WORD for before, after in zip(usual, flipped, strict=True)]
        assert not {(WORD - change) % WORD for change in changes}.intersection(changes), bit

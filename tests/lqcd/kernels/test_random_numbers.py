"""Random blocks: the same bits everywhere, those of SplitMix64."""

import numpy as np
import pytest

from stages.lqcd.kernels.cpu.random_numbers import PIECE
from support.refusals import refuses

WORD = 2**64


def split_mix(state: int) -> int:
    """The number that follows `state`, in whole numbers of Python."""
    z = (state + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def expected(seed: int, draw: int, element: int) -> complex:
    start = seed * 0xD1342543DE82EF95 + ((draw << 40) + element) * 0x9E3779B97F4A7C15
    z = split_mix(start % WORD)
    return complex((z >> 32) * 2.0**-31 - 1, z % 2**32 * 2.0**-31 - 1)


@pytest.mark.parametrize(("seed", "draw"), [(1, 0), (577, 3), (2**70 + 5, 1000)])
@pytest.mark.parametrize("shape", [(7, 3, 5), (1,), (0, 4), (5, 0)])
def test_numbers_are_those_of_the_generator(backend, dtype, seed, draw, shape):
    block = backend.array(np.full(shape, np.nan, dtype))
    backend.kernels.random_numbers.fill_random(block, seed, draw)
    numbers = np.array([expected(seed, draw, i) for i in range(block.size)], complex).astype(dtype)
    assert np.array_equal(backend.host(block), numbers.reshape(shape))


def test_numbers_do_not_depend_on_what_is_drawn_together(backend):
    block = backend.array(np.empty(PIECE + 3, np.complex64))
    backend.kernels.random_numbers.fill_random(block, 5, 2)
    there = backend.host(block)
    for element in (0, PIECE - 1, PIECE, PIECE + 2):
        assert there[element] == np.complex64(expected(5, 2, element))
    assert abs(there.mean()) < 2e-3 and abs((abs(there) ** 2).mean() - 2 / 3) < 2e-3


def test_misuse(backend):
    fill = backend.kernels.random_numbers.fill_random
    refuses("C-contiguous and complex", fill, backend.array(np.empty((4, 6), complex))[:, ::2], 1, 0)
    refuses("complex64 or complex128, got float32", fill, backend.array(np.empty(5, np.float32)), 1, 0)

"""Hierarchical probing: what the first 2^j probes cancel, distances of what is left, refusals."""

import numpy as np
import pytest

from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise.probing import check_probes, colours, hadamard_signs, levels, probed
from support.refusals import refuses

LATTICES = [Lattice((4, 4, 4, 4)), Lattice((8, 4, 6, 2)), Lattice((6, 2, 2, 12)), Lattice((2, 2, 2, 16))]


@pytest.mark.parametrize("lattice", LATTICES, ids=str)
@pytest.mark.parametrize("parity", [0, 1])
def test_first_probes_cancel_all_pairs_of_different_colour_and_no_others(lattice, parity):
    code = colours(lattice, parity)
    for level in range(levels(lattice) + 1):
        signs = hadamard_signs(code, range(2**level))
        colour = code % 2**level
        same = colour[:, None] == colour
        assert len(np.unique(colour)) == 2**level
        assert np.array_equal(signs @ signs.T, 2**level * same)


@pytest.mark.parametrize(
    ("level", "distance2"), [(0, 2), (1, 2), (2, 4), (3, 4), (4, 8), (6, 16), (7, 16), (8, 32)]
)
def test_sites_of_one_colour_lie_apart(level, distance2):
    """Least squared distance of two sites of one colour on 8^4: it grows as in nested D4 lattices."""
    lattice = Lattice((8, 8, 8, 8))
    code, x = colours(lattice, 0) % 2**level, lattice.coordinates(0)
    first = x[np.flatnonzero(code == code[0])]
    offset = np.abs(first - x[0])
    squared = (np.minimum(offset, 8 - offset) ** 2).sum(axis=1)
    assert squared[squared > 0].min() == distance2


def test_octaves_end_where_the_power_of_two_of_an_extent_does():
    """Finest colours agree modulo the power-of-two part of each extent: odd factors are not cut."""
    lattice = Lattice((12, 8, 6, 2))
    assert 2 ** levels(lattice) == 4 * 8 * 2 * 2 // 2
    code, x = colours(lattice, 1), lattice.coordinates(1) % [4, 8, 2, 2]
    assert np.array_equal(code[:, None] == code, (x[:, None] == x).all(axis=2))


def test_probed_columns_are_the_noise_times_each_probe():
    lattice = LATTICES[0]
    noise = np.random.default_rng(3).normal(size=(lattice.half_volume, 3, 2)) + 0j
    columns = probed(noise, lattice, 1, (0, 5))
    signs = hadamard_signs(colours(lattice, 1), (5,))
    assert columns.flags.c_contiguous
    assert np.array_equal(columns[..., 0::2], noise)
    assert np.array_equal(columns[..., 1::2], noise * signs[:, None])


def test_refusals():
    refuses("must be a power of two, got 12: take 8 or 16", check_probes, 12, LATTICES[0])
    refuses(r"256 probes, but nested colourings of .* 4x4x4x4 end at 128", check_probes, 256, LATTICES[0])
    check_probes(128, LATTICES[0])
